"""Answer how many streams a case opens on a device, for one repeat and for five."""

from unittest import mock

from harness import answer, ranks
from host_device import HostDevice, emulated_gpus

from drbench.launch.ranks.run_case import Case, run_case


def main() -> None:
    with ranks() as comm, emulated_gpus():
        counts = []
        for repeats in (1, 5):
            with mock.patch.object(
                HostDevice, "stream", autospec=True, side_effect=HostDevice.stream
            ) as stream:
                case = Case(32, 32, 32, backend="cupy", iters=repeats, budget=0)
                status = run_case(case, comm).status
            counts.append((status, stream.call_count))
        answer(comm, counts)


if __name__ == "__main__":
    main()
