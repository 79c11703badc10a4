"""The arithmetic of pairs, what is refused, and shares of the machine's limits."""
import math
import unittest

import machine
import pairing
import rows


class Quantiles(unittest.TestCase):
    def test_are_linear_between_neighbours(self):
        # As published for Excel's QUARTILE.INC and numpy's default, of 1, 2, 4, 7, 8, 9, 10, 12.
        values = [12, 1, 2, 10, 4, 9, 7, 8]
        self.assertEqual(pairing.spread(values), pairing.Spread(3.5, 7.5, 9.25))

    def test_of_one_value_are_that_value(self):
        self.assertEqual(pairing.spread([3.0]), pairing.Spread(3.0, 3.0, 3.0))

    def test_of_nothing_are_refused(self):
        self.assertRaises(ValueError, pairing.quantile, [], 0.5)


class Pairs(unittest.TestCase):
    def test_a_drift_that_both_sides_share_falls_out(self):
        # The machine gets three times slower while we always take 0.8 of the peer's time.
        theirs = [1, 1, 2, 3, 3]
        ours = [0.8 * value for value in theirs]
        self.assertAlmostEqual(pairing.spread(pairing.ratios_of_pairs(ours, theirs)).median, 0.8)

    def test_the_median_is_of_the_ratios_and_not_of_the_times(self):
        self.assertEqual(pairing.median(pairing.ratios_of_pairs([1, 10, 3], [2, 10, 12])), 0.5)  # of times: 3 / 10

    def test_unequal_numbers_or_no_time_are_refused(self):
        self.assertRaises(ValueError, pairing.ratios_of_pairs, [1, 2], [1])
        self.assertRaises(ValueError, pairing.ratios_of_pairs, [], [])
        self.assertRaises(ValueError, pairing.ratios_of_pairs, [1], [0])

    def test_sides_alternate(self):
        calls = []

        def side(name):
            return lambda: calls.append(name) or len(calls)

        ours, theirs = pairing.take_turns([side("A"), side("B")], 3)
        self.assertEqual("".join(calls), "ABABAB")
        self.assertEqual((ours, theirs), ([1, 3, 5], [2, 4, 6]))

    def test_a_round_has_at_least_one_run(self):
        self.assertEqual(pairing.runs_of_a_round(2.0, 0.3), 1)
        self.assertEqual(pairing.runs_of_a_round(0.01, 0.3), 30)
        self.assertEqual(pairing.runs_of_a_round(0.0, 0.3), 1000)


class WrongResults(unittest.TestCase):
    def test_have_no_ratio(self):
        about = rows.row("training", "mlp", "pytorch", 1)

        def measure():
            pairing.hold_equal("the first losses", pairing.relative_gap([2.4], [2.3]), 1e-4)
            return rows.measured(about, [1.0], [2.0])

        row = rows.guarded(about, measure)
        self.assertEqual(row["status"], rows.REFUSED)
        self.assertEqual(row["reason"], "the first losses differ by 4.3e-02, more than 1e-04")
        self.assertNotIn("ratio", row)

    def test_are_what_is_no_number_or_missing(self):
        self.assertEqual(pairing.relative_gap([math.nan], [1.0]), math.inf)
        self.assertEqual(pairing.relative_gap([1.0], [1.0, 1.0]), math.inf)
        self.assertRaises(pairing.WrongResult, pairing.hold_equal, "outputs", math.nan, 1e-3)
        self.assertEqual(pairing.hold_equal("outputs", 1e-4, 1e-3), 1e-4)

    def test_are_told_apart_from_failures(self):
        row = rows.guarded(rows.row("inference", "vit"), lambda: [][0])
        self.assertEqual((row["status"], row["reason"]), (rows.FAILED, "list index out of range"))


class Machine(unittest.TestCase):
    CPUINFO = "processor\t: 0\ncpu family\t: 25\nmodel\t\t: 17\nmodel name\t: AMD EPYC 9B14\nflags\t\t: fpu\n\nprocessor\t: 1\n"

    def test_is_named_with_family_and_model(self):
        self.assertEqual(machine.processor(self.CPUINFO), "AMD EPYC 9B14, family 25, model 17")
        self.assertEqual(machine.processor(""), "unknown processor, family ?, model ?")

    def test_a_limit_reaches_both_sides(self):
        limited = machine.environment("avx2")
        self.assertEqual((limited["ONEDNN_MAX_CPU_ISA"], limited["ATEN_CPU_CAPABILITY"]), ("AVX2", "avx2"))

    def test_limits_are_the_highest_seen(self):
        first = {"1": {"threads": 1, "instruction_set": "AVX2", "gflops": 90, "gigabytes": 20}}
        second = {"1": {"threads": 1, "instruction_set": "AVX2", "gflops": 80, "gigabytes": 25}}
        self.assertEqual(machine.higher(first, second), {"1": dict(first["1"], gigabytes=25)})

    def test_shares_are_of_the_limit_of_as_many_threads(self):
        limits = {"1": {"gflops": 100}, "2": {"gflops": 200}}
        about = rows.row("inference", "resnet50", "onnxruntime", 2)
        row = rows.measured(about, [0.1], [0.1], flops=8e9)
        self.assertAlmostEqual(rows.with_shares([row], limits)[0]["share"], 0.4)
        self.assertNotIn("share", rows.with_shares([row], {"1": {"gflops": 100}})[0])
        self.assertIsNone(rows.with_shares([row], {"2": {"gflops": 70}})[0]["share"])
        refused = rows.without_ratio(about, rows.REFUSED, "outputs differ")
        self.assertEqual(rows.with_shares([refused], limits), [refused])


if __name__ == "__main__":
    unittest.main()
