#include "ops/custom/isolation/host_answers.h"

#include <cstdint>
#include <string>
#include <vector>

#include "gtest/gtest.h"

namespace weft {
namespace {

// What a host was asked, by a table that writes it down.
struct Asked {
  std::vector<std::string> failures;
  std::vector<int64_t> output_dims;
  int32_t output_rank = 0;
  int calls = 0;
  std::vector<WeftValue> node_inputs;
  std::vector<std::string> attributes;
};
Asked asked;

WeftHost WritingHost() {
  WeftHost host{};
  host.fail = [](WeftCall*, const char* message) { asked.failures.emplace_back(message); };
  host.set_output_type = [](WeftCall*, int32_t, const WeftType* type) {
    ++asked.calls;
    asked.output_rank = type->rank;
    if (type->rank > 0) asked.output_dims.assign(type->dims, type->dims + type->rank);
  };
  host.input_type = [](const WeftCall*, int32_t, WeftType* type) {
    static constexpr int64_t kDims[] = {2, -1};
    *type = {1, 2, kDims};
  };
  host.input_value = [](const WeftCall*, int32_t i, WeftTensor* tensor) -> int32_t {
    static int64_t value = 42;
    static constexpr int64_t kDims[] = {1};
    *tensor = {&value, kDims, kDims, kDims, 1, 7};
    return i == 0;
  };
  host.add_node = [](WeftCall*, const char*, const char*, const WeftValue* inputs,
                     int32_t num_inputs, const WeftAttribute* attributes, int32_t num_attributes,
                     WeftValue* outputs, int32_t num_outputs) {
    ++asked.calls;
    asked.node_inputs.assign(inputs, inputs + num_inputs);
    for (int32_t k = 0; k < num_attributes; ++k) asked.attributes.emplace_back(attributes[k].name);
    for (int32_t k = 0; k < num_outputs; ++k) outputs[k] = 10 + k;
  };
  return host;
}

class AnswerQuestionTest : public ::testing::Test {
 protected:
  AnswerQuestionTest() { asked = {}; }

  absl::StatusOr<std::string> Answer(const std::string& question) {
    return AnswerQuestion(host_, call(), question,
                          [this](const void* data, int64_t bytes) -> absl::StatusOr<int64_t> {
                            shared_.assign(static_cast<const char*>(data),
                                           static_cast<size_t>(bytes));
                            return 128;
                          });
  }
  static MessageWriter Question(HostFunction function) {
    MessageWriter question;
    question.Number(function);
    return question;
  }
  // The host here never looks at it.
  WeftCall& call() { return *reinterpret_cast<WeftCall*>(&no_call_); }

  const WeftHost host_ = WritingHost();
  int no_call_ = 0;
  std::string shared_;
};

TEST_F(AnswerQuestionTest, TypesAndValuesAreTold) {
  MessageWriter type = Question(HostFunction::kInputType);
  type.Number(int32_t{0});
  const auto told = Answer(type.bytes());
  ASSERT_TRUE(told.ok()) << told.status();
  MessageReader reader(*told);
  EXPECT_EQ(reader.Number<int32_t>(), 1);
  EXPECT_EQ(reader.Number<int32_t>(), 2);
  EXPECT_EQ(reader.Numbers<int64_t>(), (std::vector<int64_t>{2, -1}));
  EXPECT_TRUE(reader.WasAll());

  MessageWriter value = Question(HostFunction::kInputValue);
  value.Number(int32_t{0});
  const auto known = Answer(value.bytes());
  ASSERT_TRUE(known.ok()) << known.status();
  MessageReader answer(*known);
  EXPECT_EQ(answer.Number<int32_t>(), 1);
  const SharedTensor tensor = ReadTensor(answer);
  EXPECT_EQ(tensor.place, 128);
  EXPECT_EQ(tensor.dtype, 7);
  EXPECT_EQ(shared_, std::string("\x2a\0\0\0\0\0\0\0", 8));
}

// The rank is that of the sizes that came, not the one that is claimed.
TEST_F(AnswerQuestionTest, AClaimedRankReadsNothingElse) {
  MessageWriter question = Question(HostFunction::kSetOutputType);
  question.Number(int32_t{0});
  question.Number(int32_t{1});
  question.Number(int32_t{1'000'000});
  const std::vector<int64_t> dims = {5, 6};
  question.Numbers(dims.data(), dims.size());
  ASSERT_TRUE(Answer(question.bytes()).ok());
  EXPECT_EQ(asked.output_rank, 2);
  EXPECT_EQ(asked.output_dims, dims);
}

MessageWriter NodeQuestion(int32_t num_outputs) {
  MessageWriter question;
  question.Number(HostFunction::kAddNode);
  question.Text("");
  question.Text("Add");
  const std::vector<WeftValue> inputs = {3, 0, -5};
  question.Numbers(inputs.data(), inputs.size());
  WriteAttributes({{"alpha", 0.5f}, {"perm", std::vector<int64_t>{1, 0}}}, question);
  question.Number(num_outputs);
  return question;
}

TEST_F(AnswerQuestionTest, ANodeIsAddedAsItWasAsked) {
  const auto answer = Answer(NodeQuestion(2).bytes());
  ASSERT_TRUE(answer.ok()) << answer.status();
  EXPECT_EQ(MessageReader(*answer).Numbers<WeftValue>(), (std::vector<WeftValue>{10, 11}));
  EXPECT_EQ(asked.node_inputs, (std::vector<WeftValue>{3, 0, -5}));
  EXPECT_EQ(asked.attributes, (std::vector<std::string>{"alpha", "perm"}));
}

TEST_F(AnswerQuestionTest, ANodeWithOutputsWithoutEndIsAnErrorOfTheOp) {
  for (const int32_t outputs : {-1, 1 << 30}) {
    asked = {};
    ASSERT_TRUE(Answer(NodeQuestion(outputs).bytes()).ok());
    EXPECT_EQ(asked.calls, 0);
    EXPECT_EQ(asked.failures.size(), 1u);
  }
}

TEST_F(AnswerQuestionTest, AnErrorIsNoLongerThanItMayBe) {
  MessageWriter question = Question(HostFunction::kFail);
  question.Text(std::string(1 << 20, 'x'));
  ASSERT_TRUE(Answer(question.bytes()).ok());
  ASSERT_EQ(asked.failures.size(), 1u);
  EXPECT_EQ(asked.failures[0].size(), 4000u);
}

// None of the parts of a question makes the host do something, but the whole.
TEST_F(AnswerQuestionTest, WhatIsCutOffOrNoQuestionIsRefused) {
  const std::string whole = NodeQuestion(1).bytes();
  for (size_t size = 0; size < whole.size(); ++size) {
    EXPECT_EQ(Answer(whole.substr(0, size)).status().code(), absl::StatusCode::kInvalidArgument)
        << size;
  }
  EXPECT_FALSE(Answer(whole + "x").ok());
  EXPECT_FALSE(Answer(std::string(1, static_cast<char>(kHostFunctions))).ok());
  EXPECT_EQ(asked.calls, 0);
}

}  // namespace
}  // namespace weft
