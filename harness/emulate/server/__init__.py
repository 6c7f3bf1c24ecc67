"""The emulator's server: one thread, one epoll, the engine's steps on the machine's clock."""
