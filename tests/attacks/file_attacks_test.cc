// Files that somebody else wrote, through the program: each is refused with the exit code of its
// kind, in bounded time and without steering the terminal; what is right still works after it.
#include <sys/resource.h>
#include <sys/stat.h>

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/attacks/hostile_files.h"
#include "tests/command_run.h"
#include "tools/console/exit_code.h"

namespace weft::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

constexpr double kMaxProcessorSeconds = 3;

// Of this process, in seconds.
double ProcessorTime() {
  rusage usage = {};
  getrusage(RUSAGE_SELF, &usage);
  const auto seconds = [](const timeval& time) {
    return static_cast<double>(time.tv_sec) + 1e-6 * static_cast<double>(time.tv_usec);
  };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

// No letter of a text has a terminal do something but go to the next line.
void ExpectPlain(const std::string& text) {
  for (const char c : text) {
    EXPECT_FALSE((static_cast<unsigned char>(c) < 0x20 && c != '\n') || c == 0x7f) << text;
  }
  EXPECT_THAT(text, Not(HasSubstr("\xc2\x9b")));      // ESC [ in one letter
  EXPECT_THAT(text, Not(HasSubstr("\xe2\x80\xae")));  // from right to left
}

class FileAttacksTest : public ::testing::Test {
 protected:
  FileAttacksTest() {
    WriteTestFile(model_, WireModel(17, {{"n", "Relu", {"x"}, {"y"}}}, "x", "y"));
    EXPECT_EQ(RunCommand({"example", "mlp", "-o", mlp_}).exit_code, 0);
  }

  // The name of an attack, the words of a command, and what it must say.
  void ExpectRefused(const std::string& name, const Arguments& command, ExitCode code,
                     const std::string& part) {
    SCOPED_TRACE(name);
    const double begin = ProcessorTime();
    const CommandResult result = RunCommand(command);
    EXPECT_LT(ProcessorTime() - begin, kMaxProcessorSeconds);
    EXPECT_EQ(result.exit_code, static_cast<int>(code)) << result.out << result.err;
    EXPECT_THAT(result.err, HasSubstr("error: "));
    EXPECT_THAT(result.err, HasSubstr(part));
    ExpectPlain(result.out + result.err);
    EXPECT_EQ(RunCommand({"inspect", model_}).exit_code, 0);
  }
  // A file of the running test.
  static std::string File(const std::string& name, const std::string& bytes) {
    const std::string path = TestPath(name);
    WriteTestFile(path, bytes);
    return path;
  }
  Arguments Plan(const Arguments& more) const {
    return Arguments{"plan", mlp_, "--loss", "softmax_cross_entropy", "--batch", "8"} + more;
  }
  Arguments Run(const std::string& input) const {
    return {"run", model_, "--input", "x=" + input, "--output-dir", TestPath("out")};
  }

  const std::string model_ = TestPath("small.onnx");
  const std::string mlp_ = TestPath("mlp.onnx");
};

TEST_F(FileAttacksTest, YamlThatStandsForATrillionValues) {
  ExpectRefused("ClusterOfAliases", Plan({"--cluster", File("c.yaml", AliasBomb("hosts"))}),
                ExitCode::kPlan, "c.yaml");
  ExpectRefused("PlanOfAliases", Plan({"--plan", File("p.yaml", AliasBomb("workers"))}),
                ExitCode::kPlan, "p.yaml");
  ExpectRefused("CalibrationOfAliases",
                Plan({"--calibration", File("k.yaml", AliasBomb("devices"))}), ExitCode::kPlan,
                "k.yaml");
  ExpectRefused("JobFileOfAliases", {"train", "--config", File("j.yaml", AliasBomb("data"))},
                ExitCode::kUsage, "expected a text or a number here");
}

TEST_F(FileAttacksTest, NumbersThatAreTooLarge) {
  const auto cluster = [this](const std::string& worker) {
    return Plan({"--cluster", File("c.yaml", absl::StrCat("hosts:\n  - name: a\n    workers:\n"
                                                          "      - {",
                                                          worker, "}\n"))});
  };
  ExpectRefused("ThreadsOfTwoToThe64", cluster("threads: 18446744073709551616"), ExitCode::kPlan,
                "expected a whole number");
  ExpectRefused("ThreadsBelowZero", cluster("threads: -1"), ExitCode::kPlan,
                "expected a whole number");
  ExpectRefused("MemoryOfInfinity", cluster("memory: 1e999GiB"), ExitCode::kPlan, "c.yaml");
  ExpectRefused("MemoryThatIsNoNumber", cluster("memory: nanGiB"), ExitCode::kPlan, "c.yaml");
  const std::string two_hosts =
      "hosts:\n  - {name: a, workers: [{address: '10.0.0.1:1'}]}\n"
      "  - {name: b, workers: [{address: '10.0.0.2:1'}]}\n"
      "links:\n  - {from: a, to: b, ";
  const std::string digits(400, '9');
  ExpectRefused("BandwidthOfInfinity",
                Plan({"--cluster", File("c.yaml", absl::StrCat(two_hosts, "bandwidth: ", digits,
                                                               "Gbit/s, latency: 1us}\n"))}),
                ExitCode::kPlan, "is too large");
  ExpectRefused(
      "LatencyOfInfinity",
      Plan({"--cluster", File("c.yaml", absl::StrCat(two_hosts, "bandwidth: 1Gbit/s, latency: ",
                                                     digits, "s}\n"))}),
      ExitCode::kPlan, "is too large");
  const auto plan = [this](const std::string& text) {
    return Plan({"--plan", File("p.yaml", text + "\n")});
  };
  ExpectRefused("PlanOfTwoToThe40MicroBatches", plan("micro_batches: 1099511627776"),
                ExitCode::kPlan, "expected a whole number");
  ExpectRefused("PlanOfTwoToThe48Ranks",
                plan("mesh: {data: 65536, tensor: 65536, pipeline: 65536}"), ExitCode::kPlan,
                "error: ");
  ExpectRefused("PlanOfNoMesh", plan("mesh: {data: 0, tensor: -1, pipeline: 1}"), ExitCode::kPlan,
                "p.yaml");
  const auto history = [this](const std::string& line) {
    return Plan({"--run-history", File("h.jsonl", line + "\n")});
  };
  ExpectRefused("RunHistoryOfHugeNumbers", history("{\"predicted\": 1e999, \"measured\": -1e999}"),
                ExitCode::kPlan, "h.jsonl");
  ExpectRefused("RunHistoryThatIsNoJson", history("[[[[{\"a\":"), ExitCode::kPlan, "h.jsonl");
}

// A device is never read to its end, a pipe without a writer is not waited for.
TEST_F(FileAttacksTest, WhatIsNoFileAndWhatIsTooLong) {
  const std::string pipe = TestPath("pipe");
  std::filesystem::remove(pipe);
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
  for (const char* const flag : {"--cluster", "--plan", "--calibration", "--run-history"}) {
    ExpectRefused("FlagFileIsADevice", Plan({flag, "/dev/zero"}), ExitCode::kPlan,
                  "a device, a pipe");
    ExpectRefused("FlagFileIsAPipe", Plan({flag, pipe}), ExitCode::kPlan, "a device, a pipe");
  }
  ExpectRefused("ModelIsADevice", {"inspect", "/dev/zero"}, ExitCode::kModel, "a device, a pipe");
  ExpectRefused("DataIsAPipe", Run(pipe), ExitCode::kData, "a device, a pipe");
  const std::string large = File("large.yaml", std::string((16 << 20) + 1, '#'));
  for (const char* const flag : {"--cluster", "--plan", "--calibration"}) {
    ExpectRefused("FlagFileIsTooLong", Plan({flag, large}), ExitCode::kPlan, "16777216");
  }
}

TEST_F(FileAttacksTest, ArraysThatLie) {
  const auto npy = [](const std::string& shape) {
    return NpyOf(absl::StrCat("{'descr': '<f4', 'fortran_order': False, 'shape': ", shape, ", }"),
                 std::string(16, '\0'));
  };
  ExpectRefused("NpyOfTwoToThe60Elements", Run(File("x.npy", npy("(1073741824, 1073741824)"))),
                ExitCode::kData, "x.npy");
  ExpectRefused("NpyWhoseSizeOverflows", Run(File("x.npy", npy("(4294967296, 4294967296, 4)"))),
                ExitCode::kData, "x.npy");
  ExpectRefused("NpyOfNegativeSize", Run(File("x.npy", npy("(-1, 4)"))), ExitCode::kData, "x.npy");
  ExpectRefused(
      "NpyOfObjects",
      Run(File("x.npy", NpyOf("{'descr': '|O', 'fortran_order': False, 'shape': (1, 4), }",
                              "cos\nsystem\n(S'true'\ntR."))),
      ExitCode::kData, "x.npy");
  std::string header = SmallNpy();
  header[8] = header[9] = '\xff';
  ExpectRefused("NpyWithAnEndlessHeader", Run(File("x.npy", header)), ExitCode::kData, "x.npy");
  const std::string size("\x7f\xff\xff\xff", 4);
  ExpectRefused("IdxOfTwoToThe124Elements",
                Run(File("x.idx", std::string("\0\0\x0d\x04", 4) + size + size + size + size)),
                ExitCode::kData, "x.idx");
  ExpectRefused(
      "GzipBomb",
      Run(File("x.npy.gz", Gzip(SmallNpy()) + Gzip(std::string(64 << 20, '\0'), /*damaged=*/true))),
      ExitCode::kData, "more bytes than the");
}

TEST_F(FileAttacksTest, ArchivesThatLie) {
  const auto npz = [this](const ZipLies& lies, const std::string& content = SmallNpy()) {
    return Run(File("x.npz", ZipOf(content, lies)));
  };
  ZipLies lies;
  ASSERT_EQ(RunCommand(npz(lies)).exit_code, 0) << "an archive without a lie is taken";
  lies.deflated = true;
  ASSERT_EQ(RunCommand(npz(lies)).exit_code, 0);
  constexpr uint32_t kIn64 = 0xffffffff;
  constexpr uint64_t kHuge = uint64_t{1} << 62;
  lies = {};
  lies.packed_bytes = lies.bytes = kIn64;
  lies.extra = Zip64Field(kHuge, kHuge);
  ExpectRefused("NpzOfZip64SizesBeyondTheFile", npz(lies), ExitCode::kData, "is not at byte");
  lies.extra = Zip64Field(kHuge, SmallNpy().size());
  ExpectRefused("NpzThatClaimsTwoToThe62Bytes", npz(lies), ExitCode::kData, "x.npz");
  lies.extra = Zip64Field(kHuge, kHuge, 4);
  ExpectRefused("NpzOfZip64SizesThatAreCut", npz(lies), ExitCode::kData, "are cut");
  lies = {};
  lies.directory = 0xfffffff0;
  ExpectRefused("NpzWithItsDirectoryOutside", npz(lies), ExitCode::kData, "it ends outside");
  lies = {};
  lies.members = uint64_t{1} << 63;
  ExpectRefused("NpzOfTwoToThe63Members", npz(lies), ExitCode::kData, "is missing");
  lies = {};
  lies.deflated = true;
  ExpectRefused("NpzBomb", npz(lies, SmallNpy() + std::string(64 << 20, '\0')), ExitCode::kData,
                "unpacks to more than");
  lies.bytes = 5;
  ExpectRefused("NpzThatIsLongerThanItSays", npz(lies), ExitCode::kData, "x.npz");
}

// The models are good ones: their names are what is shown.
TEST_F(FileAttacksTest, NamesDoNotSteerTheTerminal) {
  const std::string node = "\x1b[2Jnode\nerror: forged",
                    value = "\x1b]0;title\x07value\xe2\x80\xae",
                    second =
                        "\xc2\x9b"
                        "31mred\rline";
  const std::string model = File(
      "steering.onnx",
      WireModel(17, {{node, "Relu", {"x"}, {value}}, {second, "Relu", {value}, {"y"}}}, "x", "y"));
  for (const Arguments& command : std::vector<Arguments>{
           {"inspect", model},
           {"check", model},
           {"run", model, "--random", "--dim", "N=2", "--profile", "--output-dir", TestPath("out")},
           {"run", model, "--random", "--dim", "N=2", "--output-name", value, "--output-dir",
            TestPath("out")}}) {
    SCOPED_TRACE(absl::StrCat("NamesOfAModel ", command[0]));
    const CommandResult result = RunCommand(command);
    EXPECT_NE(result.out + result.err, "");
    ExpectPlain(result.out + result.err);
    EXPECT_FALSE(absl::StrContains(result.out + result.err, "\nerror: forged"));
  }
  // "\e" is ESC in YAML.
  const CommandResult cluster =
      RunCommand(Plan({"--explain", "--cluster",
                       File("c.yaml",
                            "hosts:\n  - name: \"\\e[2Jhost\"\n    workers:\n"
                            "      - {name: \"\\e[31mworker\\a\", threads: 1}\n")}));
  SCOPED_TRACE("NamesOfACluster");
  ExpectPlain(cluster.out + cluster.err);
}

// Whatever a model calls its outputs, they lie right in the folder.
TEST_F(FileAttacksTest, OutputsStayInTheirFolder) {
  const std::string root = TestPath("root"), folder = root + "/a/b";
  const std::vector<std::pair<std::string, std::string>> names = {
      {"OutputAboveItsFolder", "../escaped"},
      {"OutputAtTheRoot", "/tmp/weft-escaped"},
      {"OutputThatIsTheFolder", "."},
      {"OutputThatIsTheFolderAbove", ".."},
      {"OutputThroughAnotherFolder", "c/../../../escaped"},
      {"OutputThatIsANul", std::string("\0", 1)},
      {"OutputWithANul", std::string("y\0/../escaped", 13)},
      {"OutputOfALongName", std::string(5000, 'n')}};
  for (const auto& [name, output] : names) {
    SCOPED_TRACE(name);
    std::filesystem::remove_all(root);
    std::filesystem::create_directories(folder);
    const std::string model =
        File("m.onnx", WireModel(17, {{"n", "Relu", {"x"}, {output}}}, "x", output));
    const CommandResult result =
        RunCommand({"run", model, "--random", "--dim", "N=2", "--output-dir", folder});
    ExpectPlain(result.out + result.err);
    int files = 0;
    for (const auto& entry : std::filesystem::recursive_directory_iterator(root)) {
      if (entry.is_directory()) continue;
      EXPECT_EQ(entry.path().parent_path().string(), folder) << entry.path();
      ++files;
    }
    EXPECT_EQ(files, result.exit_code == 0 ? 1 : 0) << result.err;
    EXPECT_FALSE(std::filesystem::exists("/tmp/weft-escaped.npy"));
  }
}

// Keys of tests 1 and 2 of RFC 8032, section 7.1.
class SignatureAttacksTest : public FileAttacksTest {
 protected:
  SignatureAttacksTest() {
    WriteKey(own_private_, "PRIVATE KEY",
             "MC4CAQAwBQYDK2VwBCIEIEzNCJso/5banbbDRuwRTg9bijGfNaumJNqM9u1PuKb7");
    WriteKey(own_public_, "PUBLIC KEY",
             "MCowBQYDK2VwAyEAPUAXw+hDiVqStwqnTRt+vJyYLM8uxJaMwM1V8Sr0Zgw=");
    WriteKey(other_private_, "PRIVATE KEY",
             "MC4CAQAwBQYDK2VwBCIEIJ1hsZ3v/VpguoRK9JLsLMREScVpezJpGXA7rAMcrn9g");
    WriteTestFile(another_, WireModel(17, {{"n", "Abs", {"x"}, {"y"}}}, "x", "y"));
  }
  ~SignatureAttacksTest() override {
    for (const std::string& path : {own_private_, other_private_}) std::filesystem::remove(path);
  }

  static void WriteKey(const std::string& path, const std::string& kind, const std::string& text) {
    std::filesystem::remove(path);
    WriteTestFile(
        path, absl::StrCat("-----BEGIN ", kind, "-----\n", text, "\n-----END ", kind, "-----\n"));
    std::filesystem::permissions(path, std::filesystem::perms::owner_read);
  }
  // The signature of a file by this key.
  std::string SignatureOf(const std::string& path, const std::string& key) const {
    std::filesystem::remove(path + ".sig");
    const CommandResult result = RunCommand({"ckpt", "sign", path, "--key", key});
    EXPECT_EQ(result.exit_code, 0) << result.err;
    EXPECT_THAT(result.out + result.err, Not(HasSubstr("PRIVATE")));
    return ReadTestFile(path + ".sig");
  }
  // What `inspect` says of the model beside this signature.
  void ExpectDenied(const std::string& name, const std::string& signature,
                    const std::string& part) {
    WriteTestFile(model_ + ".sig", signature);
    const Arguments asks = {"inspect", model_, "--require-signature", own_public_};
    ExpectRefused(name, asks, ExitCode::kModel, part);
  }

  const std::string own_private_ = TestPath("own.pem");
  const std::string own_public_ = TestPath("own_public.pem");
  const std::string other_private_ = TestPath("other.pem");
  const std::string another_ = TestPath("another.onnx");
};

TEST_F(SignatureAttacksTest, NoneOpensTheDoor) {
  const std::string right = SignatureOf(model_, own_private_);
  const CommandResult taken = RunCommand({"inspect", model_, "--require-signature", own_public_});
  ASSERT_EQ(taken.exit_code, 0) << taken.err;
  const std::string foreign = SignatureOf(model_, other_private_);
  const auto id_of = [](const std::string& text) {
    const size_t at = text.find(':', text.find("\"keyid\""));
    const size_t begin = text.find('"', at) + 1;
    return text.substr(begin, text.find('"', begin) - begin);
  };
  ASSERT_NE(id_of(right), id_of(foreign));
  ExpectDenied("SignatureOfAnotherFile", SignatureOf(another_, own_private_), "is not a file that");
  ExpectDenied("SignatureByAnUnknownKey", foreign, "none of its signatures is by a key");
  ExpectDenied("SignatureWithTheIdOfAKnownKey",
               absl::StrReplaceAll(foreign, {{id_of(foreign), id_of(right)}}),
               "none of its signatures is by a key");
  ExpectDenied("SignatureCutOff", right.substr(0, right.size() / 2), ".sig");
  ExpectDenied("SignatureThatIsEmpty", "", "no DSSE envelope");
  ExpectDenied("SignatureOfNothing",
               "{\"payloadType\":\"application/vnd.in-toto+json\","
               "\"payload\":\"\",\"signatures\":[]}",
               ".sig");
  ExpectDenied("SignatureNestedDeep", std::string(100'000, '['), ".sig");
  ExpectDenied("SignatureThatIsBinary", std::string(4096, '\xff'), "no DSSE envelope");
  std::filesystem::remove(model_ + ".sig");
  ExpectRefused("NoSignature", {"inspect", model_, "--require-signature", own_public_},
                ExitCode::kModel, "has no signature");
  ExpectRefused(
      "OpLibraryWithoutSignature",
      {"ops", "--op_library", "ops/custom/examples/swiglu.so", "--require-signature", own_public_},
      ExitCode::kPlan, "has no signature");
  ExpectRefused("PrivateKeyAsPublicKey", {"inspect", model_, "--require-signature", own_private_},
                ExitCode::kUsage, "own.pem");
}

}  // namespace
}  // namespace weft::testing
