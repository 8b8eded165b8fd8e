// Locks of @sesamecare-oss/redlock, driven line by line: one JSON command in, one JSON answer out.
const readline = require("node:readline");
const Redis = require("ioredis");
const { Redlock } = require("@sesamecare-oss/redlock");

const clients = process.argv.slice(2).map((url) => new Redis(url));
const redlock = new Redlock(clients, { retryCount: 0 });
redlock.on("error", () => {});
const locks = new Map();

// Its own retries keep what a minority granted, which it is then refused itself: on three servers
// it can wait for itself for ever. An attempt that is given up lets go of that.
async function patiently(keys, ttl) {
  for (;;) {
    try {
      return await redlock.acquire(keys, ttl);
    } catch (error) {
      await new Promise((resolve) => setTimeout(resolve, 2 + 8 * Math.random()));
    }
  }
}

const commands = {
  async acquire({ name, keys, ttl }) {
    locks.set(name, await redlock.acquire(keys, ttl));
    return { value: locks.get(name).value };
  },
  async extend({ name, ttl }) {
    locks.set(name, await locks.get(name).extend(ttl));
    return {};
  },
  async release({ name }) {
    await locks.get(name).release();
    return {};
  },
  // Many rounds of taking one key, adding to a counter without protection, and letting go.
  async count({ key, ttl, counter, rounds }) {
    for (let round = 0; round < rounds; round += 1) {
      const lock = await patiently([key], ttl);
      const seen = Number((await clients[0].get(counter)) ?? 0);
      await clients[0].set(counter, seen + 1);
      await lock.release();
    }
    return {};
  },
};

async function main() {
  const lines = readline.createInterface({ input: process.stdin });
  for await (const line of lines) {
    const command = JSON.parse(line);
    let answer;
    try {
      answer = { ok: true, ...(await commands[command.do](command)) };
    } catch (error) {
      answer = { ok: false, error: String(error.message ?? error) };
    }
    process.stdout.write(`${JSON.stringify(answer)}\n`);
  }
  process.exit(0);
}

main();
