"""Open levels: every arrival is started at its due time, and waits for nothing."""

from harness.load.play.stage import Stage


class OpenStage(Stage):
    """One user starts all arrivals of this process; none of them waits for another's answer."""

    @property
    def users(self) -> int:
        """One: it starts the arrivals, whose number has no limit."""
        return 1

    def play_user(self, number: int) -> None:  # noqa: ARG002 - there is one
        """Start each arrival when it is due; several that are due by now are all started."""
        for place in self.share.places(self.level):
            data, after_s = self.calls[place]
            due_s = self.start_s + (after_s or 0.0)
            if not self.sleep_until(due_s):
                break
            self.spawn(self._play, place, data, due_s)
        self._wait()

    def _play(self, place: int, data: bytes, due_s: float) -> None:
        """Play what begins at a place of the plan."""
        self.send(place, data, due_s)

    def _wait(self) -> None:
        if self.end_s is not None:
            self.sleep_until(self.end_s)
        self.close_window()
        self.running.join()
