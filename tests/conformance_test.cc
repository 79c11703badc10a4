// ONNX's own test cases, of every op that the five training models and their losses use.
#include <map>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "platform/file_system.h"
#include "tests/corpora.h"
#include "tools/graph_runner/conformance_suite.h"

namespace weft::testing {
namespace {

// The ops of MLP, LeNet, ResNet-18, GPT and LSTM, with Constant and Identity.
const std::vector<std::string>& Ops() {
  static const auto* const ops = new std::vector<std::string>{"Add",
                                                              "BatchNormalization",
                                                              "Concat",
                                                              "Constant",
                                                              "Conv",
                                                              "Erf",
                                                              "Flatten",
                                                              "Gather",
                                                              "Gemm",
                                                              "GlobalAveragePool",
                                                              "Identity",
                                                              "LSTM",
                                                              "LayerNormalization",
                                                              "MatMul",
                                                              "MaxPool",
                                                              "Mul",
                                                              "Relu",
                                                              "Reshape",
                                                              "Shape",
                                                              "Slice",
                                                              "Softmax",
                                                              "SoftmaxCrossEntropyLoss",
                                                              "Split",
                                                              "Squeeze",
                                                              "Transpose"};
  return *ops;
}

// Cases that we do not pass, each with the reason.
const std::map<std::string, std::string>& KnownDifferences() {
  static const auto* const differences = new std::map<std::string, std::string>{};
  return *differences;
}

TEST(Conformance, EveryCaseOfTheTrainingModelsOpsPasses) {
  if (!CorporaFolder()) GTEST_SKIP() << "WEFT_CORPORA is not set: no models to run";
  const auto cases = ReadConformanceTable(RealFileSystem(),
                                          *CorporaFolder() + "/onnx-conformance/cases.csv", Ops());
  ASSERT_TRUE(cases.ok()) << cases.status();
  EXPECT_EQ(cases->size(), 479u);
  int passed = 0;
  for (const ConformanceCase& one : *cases) {
    const ConformanceResult result = RunConformanceCase(RealFileSystem(), one, Tolerance{});
    const auto known = KnownDifferences().find(one.name);
    if (known == KnownDifferences().end()) {
      EXPECT_EQ(result.outcome, Outcome::kPassed) << one.name << ": " << result.message;
    } else {
      EXPECT_NE(result.outcome, Outcome::kPassed)
          << one.name << " passes: it is no longer a known difference (" << known->second << ")";
    }
    passed += result.outcome == Outcome::kPassed;
  }
  RecordProperty("passed", passed);
}

}  // namespace
}  // namespace weft::testing
