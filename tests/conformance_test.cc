// Every one of ONNX's own test cases in the shared data, through the same path as `graph_runner
// run`.
#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_split.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "platform/file_system.h"
#include "tensor/device.h"
#include "tensor/testing/fake_device.h"
#include "tests/corpora.h"
#include "tools/models/conformance_suite.h"

namespace weft::testing {
namespace {

using ::testing::HasSubstr;

// Of the 3,394 cases of the shared data and of Debian's package, so many may differ.
constexpr size_t kMaxDifferences = 20;

constexpr char kOpset28[] = "onnx-1.23/";

// Cases that we do not pass, by name, each with the reason: the lines "NAME: REASON" of a file.
std::map<std::string, std::string> KnownDifferences() {
  const auto text = RealFileSystem().ReadFile("tests/conformance_differences.txt");
  EXPECT_TRUE(text.ok()) << text.status();
  std::map<std::string, std::string> differences;
  if (!text.ok()) return differences;
  for (const absl::string_view line : absl::StrSplit(*text, '\n')) {
    const absl::string_view stripped = absl::StripAsciiWhitespace(line);
    if (stripped.empty() || stripped.front() == '#') continue;
    const std::vector<std::string> parts = absl::StrSplit(stripped, absl::MaxSplits(": ", 1));
    EXPECT_EQ(parts.size(), 2u) << "no reason in the line: " << line;
    if (parts.size() == 2) differences[parts[0]] = parts[1];
  }
  return differences;
}

// The 14 cases whose expected values a generator of random numbers drew. Held to shape and type
// alone, which proves nothing of the values, and no other case is. None is in operator set 28.
std::vector<std::string> DrawnCases(const std::string& prefix) {
  if (prefix == kOpset28) return {};
  std::vector<std::string> folders = {"history/v1.16.2/node/", "v1.22.0/node/"};
  std::vector<std::string> kinds = {"double", "double_expanded", "seed", "seed_expanded"};
  if (prefix == "debian/") {
    folders = {"node/"};
    kinds.push_back("expanded");
  }
  std::vector<std::string> cases;
  for (const std::string& folder : folders) {
    for (const std::string& kind : kinds) {
      cases.push_back(prefix + folder + "test_bernoulli_" + kind);
    }
  }
  if (prefix == "debian/") cases.push_back("debian/node/test_bernoulli");
  return cases;
}

// Runs all cases; those of `prefix` in the list of differences, and no others, fail.
void ExpectAllToPass(const std::vector<ConformanceCase>& cases, const std::string& prefix) {
  std::map<std::string, std::string> differences = KnownDifferences();
  EXPECT_LE(differences.size(), kMaxDifferences);
  std::erase_if(differences, [&](const auto& one) { return !one.first.starts_with(prefix); });
  std::vector<std::string> drawn = DrawnCases(prefix);
  int passed = 0;
  for (ConformanceCase one : cases) {
    one.types_only = std::erase(drawn, prefix + one.name) > 0;
    const ConformanceResult result = RunConformanceCase(RealFileSystem(), one, Tolerance{});
    passed += result.outcome == Outcome::kPassed;
    const auto known = differences.find(prefix + one.name);
    if (known == differences.end()) {
      EXPECT_EQ(result.outcome, Outcome::kPassed) << one.name << ": " << result.message;
      continue;
    }
    EXPECT_NE(result.outcome, Outcome::kPassed)
        << one.name << " passes: it is no longer a known difference (" << known->second << ")";
    differences.erase(known);
  }
  for (const auto& [name, reason] : differences) {
    ADD_FAILURE() << name << " (" << reason << ") is listed as a difference, but is no case";
  }
  EXPECT_EQ(drawn, std::vector<std::string>()) << "these are no cases";
  ::testing::Test::RecordProperty("passed", passed);
}

TEST(Conformance, EveryCaseOfTheSharedDataPasses) {
  if (!CorporaFolder()) GTEST_SKIP() << "WEFT_CORPORA is not set: no models to run";
  const auto cases =
      ReadConformanceTable(RealFileSystem(), *CorporaFolder() + "/onnx-conformance/cases.csv", {});
  ASSERT_TRUE(cases.ok()) << cases.status();
  EXPECT_EQ(cases->size(), 2221u);
  ExpectAllToPass(*cases, "shared/");
}

TEST(Conformance, EveryCaseOfOperatorSet28Passes) {
  if (!CorporaFolder()) GTEST_SKIP() << "WEFT_CORPORA is not set: no models to run";
  const auto cases = FindConformanceCases(*CorporaFolder() + "/onnx-1.23");
  ASSERT_TRUE(cases.ok()) << cases.status();
  EXPECT_EQ(cases->size(), 101u);
  ExpectAllToPass(*cases, kOpset28);
}

TEST(Conformance, EveryCaseOfDebiansPackagePasses) {
  const std::string folder = "/usr/share/libonnx-testdata/data";
  if (!RealFileSystem().Exists(folder)) GTEST_SKIP() << "libonnx-testdata is not installed";
  const auto cases = FindConformanceCases(folder);
  ASSERT_TRUE(cases.ok()) << cases.status();
  EXPECT_GE(cases->size(), 1072u);
  ExpectAllToPass(*cases, "debian/");
}

// A device without a kernel skips the case and says so; on the CPU that would be a failure.
TEST(Conformance, SkipsWhatADeviceHasNoKernelFor) {
  const std::string folder = "/usr/share/libonnx-testdata/data/node/test_roialign_aligned_false";
  if (!RealFileSystem().Exists(folder)) GTEST_SKIP() << "libonnx-testdata is not installed";
  const auto cases = FindConformanceCases(folder);
  ASSERT_TRUE(cases.ok()) << cases.status();
  ASSERT_EQ(cases->size(), 1u);
  FakeDevice with_kernels({.scheduling = {.seed = 7}});
  const ConformanceResult passed =
      RunConformanceCase(RealFileSystem(), cases->front(), Tolerance{}, with_kernels);
  EXPECT_EQ(passed.outcome, Outcome::kPassed) << passed.message;
  EXPECT_GT(with_kernels.peak_bytes(), 0u);
  FakeDevice without({.kind = DeviceKind::kCuda});
  const ConformanceResult skipped =
      RunConformanceCase(RealFileSystem(), cases->front(), Tolerance{}, without);
  EXPECT_EQ(skipped.outcome, Outcome::kSkipped);
  EXPECT_THAT(skipped.message, HasSubstr("no kernel"));
}

}  // namespace
}  // namespace weft::testing
