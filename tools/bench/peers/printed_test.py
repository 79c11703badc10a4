"""What is read from the lines of transport_benchmark and compile_time."""
import unittest

import printed

LINES = """  1 MiB: grpc/unix 2.31 GB/s (1.90 to 2.50), raw tcp 3.10 (2.80 to 3.30), raw unix 3.55 (3.00 to 3.90); grpc / tcp 0.75 (0.60 to 0.80)
  1 MiB: shared memory 9.10 GB/s (8.80 to 9.40); shared memory / grpc 3.94 (3.60 to 4.20)
 64 MiB: grpc/unix 4.00 GB/s (3.90 to 4.10), raw tcp 4.20 (4.00 to 4.30), raw unix 4.40 (4.30 to 4.50); grpc / tcp 0.95 (0.90 to 1.00)
 16 MiB on ports: without TLS 2.10 GB/s (2.00 to 2.20), with 1.20 (1.10 to 1.30); time with / without 1.75 (1.60 to 1.80)
all-reduce of 0 KiB, 2 ranks, Grpc: median 60 us (10% 55, 90% 90)
"""


class Speeds(unittest.TestCase):
    def test_are_those_of_messages_without_ports_and_sums(self):
        self.assertEqual(printed.speeds(LINES), {
            "1 MiB": {"grpc/unix": 2.31, "raw tcp": 3.10, "raw unix": 3.55, "shared memory": 9.10},
            "64 MiB": {"grpc/unix": 4.00, "raw tcp": 4.20, "raw unix": 4.40},
        })


STEPS = """lenet, dp=1, 2 samples a micro-batch
 micro  buffers  partition     layout   lowering    compile   layout bytes    arena bytes    least bytes
    16     2000      0.010      0.002      0.020      0.030         100000         200000         190000
gpt, dp=1, 2 samples a micro-batch
 micro  buffers  partition     layout   lowering    compile   layout bytes    arena bytes    least bytes
    16     8000      0.100      0.010      0.200      0.300         100000         200000         190000
"""


class CompileRows(unittest.TestCase):
    def test_are_microseconds_of_partition_and_compile_by_buffer(self):
        found = [(row["case"], round(row["ours"]["median"], 6)) for row in printed.compile_rows(STEPS)]
        self.assertEqual(found, [("training step of lenet, 16 micro-batches", 20.0),
                                 ("training step of gpt, 16 micro-batches", 50.0)])


if __name__ == "__main__":
    unittest.main()
