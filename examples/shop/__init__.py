"""A small shop: accounts to sync, a partner to call, a sweep over everything."""
