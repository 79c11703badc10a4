#include "ops/custom/isolation/helper_messages.h"

#include <memory>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "ops/custom/isolation/library_description.h"

namespace weft {
namespace {

CallMessage SomeCall() {
  CallMessage call;
  call.function = LibraryFunction::kCompute;
  call.op = 3;
  call.threads = 5;
  call.inputs = {1, 0, 1};
  call.outputs = {1};
  call.attributes.Set("int", int64_t{-7});
  call.attributes.Set("float", 0.25f);
  call.attributes.Set("string", std::string("a\0b", 3));
  call.attributes.Set("ints", std::vector<int64_t>{1, 1LL << 40});
  call.attributes.Set("floats", std::vector<float>{});
  call.input_tensors = {{1, {2, 3}, {4, 3}, {2, 0}, 64}, {}, {7, {}, {}, {}, 0}};
  call.output_tensors = {{1, {2, 3}, {2, 3}, {0, 0}, -1}};
  return call;
}

TEST(CallMessageTest, IsReadAsItWasWritten) {
  const CallMessage call = SomeCall();
  const auto read = DecodeCall(EncodeCall(call));
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(read->function, call.function);
  EXPECT_EQ(read->op, 3u);
  EXPECT_EQ(read->threads, 5);
  EXPECT_EQ(read->inputs, call.inputs);
  EXPECT_EQ(read->outputs, call.outputs);
  EXPECT_TRUE(read->attributes.Equals(call.attributes));
  ASSERT_EQ(read->input_tensors.size(), 3u);
  EXPECT_EQ(read->input_tensors[0].dims, (std::vector<int64_t>{2, 3}));
  EXPECT_EQ(read->input_tensors[0].global_dims, (std::vector<int64_t>{4, 3}));
  EXPECT_EQ(read->input_tensors[0].offset, (std::vector<int64_t>{2, 0}));
  EXPECT_EQ(read->input_tensors[0].place, 64);
  EXPECT_EQ(read->input_tensors[0].bytes(), 24);
  EXPECT_EQ(read->input_tensors[2].bytes(), 8);  // a scalar of int64
  EXPECT_EQ(read->output_tensors[0].At(nullptr).data, nullptr);
}

// No part of one is taken for a whole, and none is read beyond its end.
TEST(CallMessageTest, ThatIsCutOffOrGoesOnIsRefused) {
  const std::string bytes = EncodeCall(SomeCall());
  for (size_t size = 0; size < bytes.size(); ++size) {
    const std::string part = bytes.substr(0, size);
    EXPECT_EQ(DecodeCall(part).status().code(), absl::StatusCode::kInvalidArgument) << size;
  }
  EXPECT_FALSE(DecodeCall(bytes + "x").ok());
}

// One byte of another value is a call, another one or none: never a crash.
TEST(CallMessageTest, AnyByteMayBeAnother) {
  const std::string bytes = EncodeCall(SomeCall());
  int calls = 0;
  for (size_t at = 0; at < bytes.size(); ++at) {
    for (const int change : {1, 0x80, 0xff}) {
      std::string changed = bytes;
      changed[at] = static_cast<char>(changed[at] ^ change);
      calls += DecodeCall(changed).ok();
    }
  }
  EXPECT_GT(calls, 0);
  EXPECT_LT(calls, static_cast<int>(3 * bytes.size()));
}

// A length beyond the message would ask for that much memory.
TEST(MessageReaderTest, TakesNoLengthThatTheMessageCannotHold) {
  MessageWriter message;
  message.Number(uint64_t{1} << 61);
  message.Number(int64_t{1});
  MessageReader reader(message.bytes());
  EXPECT_TRUE(reader.Numbers<int64_t>().empty());
  EXPECT_FALSE(reader.WasAll());
}

// ---- What libraries declare

void Nothing(const WeftHost*, WeftCall*, const void*) {}
void StandIn(const WeftHost*, WeftCall*, const void*) {}

class LibraryDescriptionTest : public ::testing::Test {
 protected:
  LibraryDescriptionTest() {
    inputs_[0] = {"x", types_, 2, WEFT_LEARNABLE};
    inputs_[1] = {nullptr, nullptr, 0, WEFT_OPTIONAL};
    op_.domain = "some";
    op_.name = "Op";
    op_.inputs = inputs_;
    op_.num_inputs = 2;
    op_.outputs = &output_;
    op_.num_outputs = 1;
    op_.attributes = &attribute_;
    op_.num_attributes = 1;
    op_.value_inputs = &value_input_;
    op_.num_value_inputs = 1;
    op_.infer = Nothing;
    op_.run_cpu = Nothing;
    op_.not_differentiable = 1;
    op_.sharding = "... -> ...";
  }
  std::string Bytes() const { return DescribeLibrary({&op_, 1}); }

  const int32_t types_[2] = {1, 11};
  const int32_t value_input_ = 1;
  const WeftOperand output_ = {"y", nullptr, 0, 0};
  const WeftAttributeDeclaration attribute_ = {"scale", WEFT_FLOAT, 1};
  WeftOperand inputs_[2];
  WeftOpDescriptor op_{};
};

TEST_F(LibraryDescriptionTest, IsReadAsItWasWrittenWithOtherFunctions) {
  const auto read = LibraryDescription::Parse(Bytes(), {StandIn, StandIn, StandIn, nullptr});
  ASSERT_TRUE(read.ok()) << read.status();
  ASSERT_EQ((*read)->library().num_ops, 1u);
  const WeftOpDescriptor& op = (*read)->library().ops[0];
  EXPECT_STREQ(op.domain, "some");
  EXPECT_STREQ(op.name, "Op");
  ASSERT_EQ(op.num_inputs, 2);
  EXPECT_STREQ(op.inputs[0].name, "x");
  EXPECT_EQ(op.inputs[0].num_dtypes, 2);
  EXPECT_EQ(op.inputs[0].dtypes[1], 11);
  EXPECT_EQ(op.inputs[0].flags, WEFT_LEARNABLE);
  EXPECT_EQ(op.inputs[1].name, nullptr);
  EXPECT_EQ(op.inputs[1].flags, WEFT_OPTIONAL);
  ASSERT_EQ(op.num_outputs, 1);
  EXPECT_STREQ(op.outputs[0].name, "y");
  ASSERT_EQ(op.num_attributes, 1);
  EXPECT_STREQ(op.attributes[0].name, "scale");
  EXPECT_EQ(op.attributes[0].required, 1);
  ASSERT_EQ(op.num_value_inputs, 1);
  EXPECT_EQ(op.value_inputs[0], 1);
  EXPECT_EQ(op.infer, StandIn);
  EXPECT_EQ(op.run_cpu, StandIn);
  EXPECT_EQ(op.gradient, nullptr);
  EXPECT_EQ(op.not_differentiable, 1);
  EXPECT_STREQ(op.sharding, "... -> ...");
}

TEST_F(LibraryDescriptionTest, ThatIsCutOffIsRefused) {
  const std::string bytes = Bytes();
  for (size_t size = 0; size < bytes.size(); ++size) {
    EXPECT_FALSE(LibraryDescription::Parse(bytes.substr(0, size), {}).ok()) << size;
  }
}

TEST_F(LibraryDescriptionTest, AnOpForGpusAloneCannotRunApart) {
  op_.run_cpu = nullptr;
  op_.run_cuda = Nothing;
  const auto read = LibraryDescription::Parse(Bytes(), {StandIn, StandIn, StandIn, nullptr});
  EXPECT_NE(read.status().message().find("'some::Op' has a kernel for GPUs alone"),
            std::string::npos)
      << read.status();
  op_.run_cpu = Nothing;
  const auto both = LibraryDescription::Parse(Bytes(), {StandIn, StandIn, StandIn, nullptr});
  ASSERT_TRUE(both.ok()) << both.status();
  EXPECT_EQ((*both)->library().ops[0].run_cuda, nullptr);
}

}  // namespace
}  // namespace weft
