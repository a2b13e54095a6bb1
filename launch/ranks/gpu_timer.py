"""Timing of work on streams of a GPU."""

import statistics

from drbench.device.gpu.cuda import CudaDevice


class Timer:
    """Times work on streams of a device, by events on them: each time some runs, without the first
    two."""

    WARM_UP = 2
    BEHIND = 10  # each other, in a run of :meth:`behind`

    def __init__(self, device: CudaDevice, runs: int = 9):
        self.device, self.runs = device, runs
        self.zero, self.one = (device.event(timed=True) for _ in range(2))

    def seconds(self, work, stream) -> float:
        """Median of ``work()``, all of which goes to ``stream``, after two runs to warm up."""
        times = []
        for _ in range(self.runs):
            stream.record(self.zero)
            work()
            stream.record(self.one)
            self.one.synchronise()
            times.append(self.one.seconds_since(self.zero))
        return statistics.median(times[self.WARM_UP :])

    def behind(self, work, stream) -> float:
        """The same of one of many behind each other, so that launching hides."""
        return self.seconds(lambda: [work() for _ in range(self.BEHIND)], stream) / self.BEHIND

    def together(self, first, others: dict) -> float:
        """Median of all ``others`` (stream -> function) begun at once: on ``first``, from before
        the first to after the last."""

        def work():
            for stream, other in others.items():
                stream.wait(self.zero)
                other()
                done = self.device.event()
                stream.record(done)
                first.wait(done)

        return self.seconds(work, first)
