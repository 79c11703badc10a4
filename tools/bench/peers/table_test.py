"""The section of a page that measurements make."""
import json
import os
import tempfile
import unittest

import rows
import table


def result(measured, **machine):
    about = {"processor": "AMD EPYC 9B14, family 25, model 17", "cores": 2, "limit": "", "load": 0.3, "date": "2026-11-28",
             "commit": "8d0b8e19", "limits": {"1": {"threads": 1, "instruction_set": "AVX512_CORE_BF16", "gflops": 117.2,
                                                   "gigabytes": 28.1}}}
    about.update(machine)
    return {"format": rows.FORMAT, "quick": False, "machine": about, "peers": {"torch": "2.15.0", "onnxruntime": "1.32.0"}, "rows": measured}


def about(group="inference", case="resnet50", peer="onnxruntime", threads=1):
    return rows.row(group, case, peer, threads)


class Section(unittest.TestCase):
    def test_has_a_line_for_each_measurement(self):
        row = rows.measured(about(), [0.070, 0.076, 0.082], [0.1, 0.1, 0.1], share=0.834)
        self.assertIn("| resnet50 | onnxruntime | 1 | A | 76 ms | 100 ms | **0.76** (0.73 to 0.79) | 83 % |",
                      table.section([result([row])]).splitlines())

    def test_names_machine_peers_and_limits(self):
        row = rows.measured(about(), [1.0], [1.0])
        self.assertIn("| A | AMD EPYC 9B14, family 25, model 17 | AVX512_CORE_BF16 | 2 | 2026-11-28 | 8d0b8e19 | onnxruntime 1.32.0, "
                      "torch 2.15.0 | 1: 117 GFLOP/s, 28.1 GB/s |", table.section([result([row])]).splitlines())

    def test_has_the_machines_of_a_case_beside_each_other(self):
        first = [rows.measured(about(case=case), [1.0], [2.0]) for case in ("vit", "bert")]
        second = [rows.measured(about(case=case), [1.0], [4.0]) for case in ("bert", "vit")]
        lines = table.section([result(first), result(second)]).splitlines()
        cases = [line.split(" | ")[0][2:] + line.split(" | ")[3] for line in lines if "onnxruntime | 1 |" in line]
        self.assertEqual(cases, ["vitA", "vitB", "bertA", "bertB"])

    def test_says_why_there_is_no_ratio(self):
        row = rows.without_ratio(about(), rows.REFUSED, "outputs differ by 2.0e-01, more than 1e-03")
        text = table.section([result([row])])
        self.assertIn("| resnet50 | onnxruntime | 1 | A | refused: outputs differ by 2.0e-01, more than 1e-03 |  |  |  |", text)
        self.assertNotIn("**", text)

    def test_has_no_table_of_a_group_that_did_not_run(self):
        text = table.section([result([rows.measured(about(), [1.0], [1.0])])])
        self.assertIn("### Inference", text)
        self.assertNotIn("### Training steps", text)

    def test_says_what_disturbed_or_limited_it(self):
        row = rows.measured(about(), [1.0], [1.0])
        text = table.section([result([row], load=2.5), result([row], limit="avx2")])
        self.assertIn("A ran beside other work (load 2.5)", text)
        self.assertNotIn("B ran beside", text)
        self.assertIn("AVX512_CORE_BF16, limited to avx2", text)
        self.assertIn("On B the limit holds for Weft and PyTorch; onnxruntime has no switch", text)

    def test_says_that_a_run_was_quick(self):
        quick = dict(result([]), quick=True)
        self.assertIn("B was a quick run", table.section([result([]), quick]))
        self.assertNotIn("A was a quick run", table.section([result([]), quick]))

    def test_refuses_more_files_than_letters(self):
        self.assertRaisesRegex(table.Unreadable, "27 files", table.section, 27 * [result([])])

    def test_takes_peak_memory_from_the_rows_of_other_groups(self):
        row = rows.measured(about(), [1.0], [1.0], memory={"ours": 100 * 2**20, "theirs": 125 * 2**20})
        self.assertIn("| inference, resnet50 | onnxruntime | 1 | A | 100 MiB | 125 MiB | **0.80** (0.80 to 0.80) |  |",
                      table.section([result([row])]))


class Numbers(unittest.TestCase):
    def test_have_three_digits(self):
        shown = [table.number(value) for value in (0, 0.001234, 1.2345, 12.345, 999.4, 4560.1)]
        self.assertEqual(shown, ["0", "0.00123", "1.23", "12.3", "999", "4,560"])


class Page(unittest.TestCase):
    def test_keeps_what_is_around_the_markers(self):
        page = "# Measurements\n\n%s\nold\n%s\n\n## More\n" % (table.BEGIN, table.END)
        self.assertEqual(table.replaced(page, "new\n"), page.replace("old", "new"))
        self.assertEqual(table.replaced(table.replaced(page, "new\n"), "newer\n"), page.replace("old", "newer"))

    def test_without_markers_or_with_two_is_refused(self):
        for page in ("# Measurements\n", table.BEGIN, table.END + table.BEGIN, 2 * (table.BEGIN + table.END)):
            self.assertRaisesRegex(table.Unreadable, "these two lines once", table.replaced, page, "")


class Files(unittest.TestCase):
    def test_of_others_are_refused(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "x.json")
            for text in ("{", "[]", json.dumps({"format": 99})):
                with open(path, "w") as file:
                    file.write(text)
                self.assertRaisesRegex(table.Unreadable, "x.json", table.read, path)
        self.assertRaisesRegex(table.Unreadable, "cannot read", table.read, path)


if __name__ == "__main__":
    unittest.main()
