"""What a server does with the scripts of locks: models, held to the real ones."""

from __future__ import annotations

import re

NUMBER = re.compile(r"[0-9a-f]+\.(\d+)")


def waiter(lease):
    """The fields that say of a waiter when it was seen, where to ring it, and what it asks for."""
    return lease, f"{lease}:ring", f"{lease}:asks"


def number_of(value):
    found = NUMBER.match(value)
    return int(found[1]) if found else 0


class Store:
    """The data of one server: strings, lines (sorted sets) and hashes, with when they expire."""

    def __init__(self):
        self.data = {}
        self.expires = {}

    def copy(self):
        other = Store()
        other.data = {
            key: dict(value) if isinstance(value, dict) else value
            for key, value in self.data.items()
        }
        other.expires = dict(self.expires)
        return other

    def expire(self, now):
        """Forget what has expired by *now*, in ms."""
        for key in [key for key, at in self.expires.items() if at <= now]:
            del self.expires[key]
            del self.data[key]

    def pttl(self, key, now):
        if key not in self.data:
            return -2
        return int(self.expires[key] - now) if key in self.expires else -1

    def head(self, line):
        places = self.data.get(line)
        return min(places, key=lambda each: (places[each], each)) if places else None

    def remove_key(self, key):
        del self.data[key]
        self.expires.pop(key, None)

    def remove(self, key, *fields):
        """ZREM or HDEL: an empty collection is gone."""
        held = self.data.get(key)
        if held is None:
            return
        for field in fields:
            held.pop(field, None)
        if not held:
            self.remove_key(key)


def acquire(store, now_us, keys, arguments, publish=None):  # noqa: C901, PLR0912 - as the script
    lease, value, ttl, grace, ring, live, handed = (*arguments, 0)[:7]
    now = now_us // 1000
    store.expire(now)
    data = store.data
    marker = data.get(keys[0], {})
    since = int(marker["since"]) if "since" in marker else None
    if since is None or since > now:
        since = now
        data.setdefault(keys[0], {})["since"] = str(since)
    places = list(zip(keys[2::3], keys[3::3], keys[4::3], strict=True))
    verdict, pause, holder, ours = 1, 0, "", True
    for lock, _, _ in places:
        held = data.get(lock)
        if held is None:
            ours = False
        elif not held.startswith(lease):
            ours = False
            verdict, holder = 0, held
            pause = max(pause, store.pttl(lock, now))
        elif number_of(held) > number_of(value):
            return [0, 0, 0, ""]
    if verdict == 1 and not ours:
        for _, line, seen in places:
            head = store.head(line)
            while (
                head is not None
                and head != lease
                and int(data.get(seen, {}).get(head, 0)) < now - live
            ):
                store.remove(line, head)
                store.remove(seen, *waiter(head))
                head = store.head(line)
            if head is not None and head != lease:
                verdict = 2
        if verdict == 1 and now < since + grace:
            verdict, pause = 3, since + grace - now
    if verdict != 1:
        if ring:
            stands = all(lease in data.get(line, ()) for _, line, _ in places)
            for _, line, seen in places:
                if not stands:
                    data.setdefault(line, {})[lease] = now_us
                asks = f"{min(ttl, live)} {grace} {value}" if handed else ""
                said = zip(waiter(lease), (str(now), ring, asks), strict=True)
                data.setdefault(seen, {}).update(said)
                if line in data:
                    store.expires[line] = now + 2 * live
                store.expires[seen] = now + 2 * live
        return [verdict, 0, pause, holder]
    last = int(data.get(keys[1], now_us))
    fence = max(last, since * 1000) + 1
    data[keys[1]] = str(fence)
    for lock, _, seen in places:
        data[lock] = value
        store.expires[lock] = now + ttl
        store.remove(seen, *waiter(lease))
    return [1, fence, ttl, ""]


def release(store, now_us, keys, arguments, publish):  # noqa: C901, PLR0912 - as the script
    lease, keep, live, upto, stay = (*arguments, "", "")[:5]
    upto = float("inf") if upto == "" else int(upto)
    now = now_us // 1000
    store.expire(now)
    data = store.data
    freed = set()
    for lock, line, seen in zip(keys[2::3], keys[3::3], keys[4::3], strict=True):
        value = data.get(lock)
        if value is not None and value.startswith(lease) and number_of(value) <= upto:
            freed.add(lock)
            if keep > 0:
                store.expires[lock] = now + keep
            else:
                store.remove_key(lock)
                value = None
        ours = lock in freed
        if not stay:
            first = store.head(line) == lease
            stood = (first or not ours) and lease in data.get(line, {})
            if stood:
                store.remove(line, lease)
            if stood and not ours:
                store.remove(seen, *waiter(lease))
        elif stay != "-" and lease in data.get(line, {}):
            said = zip(waiter(lease), (str(now), stay, ""), strict=True)
            data.setdefault(seen, {}).update(said)
            store.expires[line] = store.expires[seen] = now + 2 * live
        head = None if value is not None else store.head(line)
        while head is not None and head != lease:
            fields = data.get(seen, {})
            ring = fields.get(f"{head}:ring")
            if ring and int(fields.get(head, 0)) >= now - live:
                asks = fields.get(f"{head}:asks")
                granted = asks and grant(store, now, keys, lock, asks, int(fields.get(head, 0)))
                if publish(ring, f"{head} {granted}" if granted else head):
                    if granted:
                        store.remove(seen, *waiter(head))
                    break
                if granted:
                    store.remove_key(lock)
            store.remove(line, head)
            store.remove(seen, *waiter(head))
            head = store.head(line)
    return len(freed)


def grant(store, now, keys, lock, asks, at):
    ttl, grace, value = asks.split(" ", 2)
    if now - at > int(ttl) / 2:
        return None
    marker = store.data.get(keys[0], {})
    run, since = marker.get("run"), marker.get("since")
    last = store.data.get(keys[1])
    if run is None or since is None or int(since) > now or now < int(since) + int(grace):
        return None
    if last is None:
        return None
    fence = int(last) + 1
    store.data[keys[1]] = str(fence)
    if fence <= int(since) * 1000:
        return None
    store.data[lock] = value
    store.expires[lock] = now + int(ttl)
    return f"{fence} {run} {value}"


def renew(store, now_us, keys, arguments, publish=None):
    lease, value, ttl, grace, run, put_back = arguments
    now = now_us // 1000
    store.expire(now)
    data = store.data
    absent = False
    for lock in keys[1:]:
        held = data.get(lock)
        if held is None:
            absent = True
        elif not held.startswith(lease):
            return -1
    if absent and not put_back:
        marker = data.get(keys[0], {})
        if not run or marker.get("run") == run:
            return 0
        if "since" not in marker:
            marker = data.setdefault(keys[0], {})
            marker["since"] = str(now)
        if now >= int(marker["since"]) + grace:
            return 0
    for lock in keys[1:]:
        data.setdefault(lock, value)
        store.expires[lock] = now + ttl
    return 1


def lift(store, now_us, keys, arguments, publish=None):
    store.expire(now_us // 1000)
    last = int(store.data.get(keys[0], 0))
    if last >= arguments[0]:
        return [0, last]
    store.data[keys[0]] = str(arguments[0])
    return [1, arguments[0]]


def arrive(store, now_us, keys, arguments, publish=None):
    run, uptime, grace = arguments
    now = now_us // 1000
    store.expire(now)
    marker = store.data.setdefault(keys[0], {})
    if marker.get("run") != run:
        since = now if marker else now - uptime
        marker.update({"run": run, "since": str(since)})
    return max(0, int(marker["since"]) + grace - now)


SCRIPTS = {
    "acquire": acquire,
    "release": release,
    "renew": renew,
    "raise": lift,
    "arrive": arrive,
}
