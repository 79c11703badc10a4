#include "graph/op_schema.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace weft {
namespace {

using ::testing::ElementsAre;
using ::testing::Pair;

TEST(OpSchema, BuilderFillsEveryPart) {
  const OpSchema schema = OpSchema::Weft("Update")
                              .Input("w", {DType::kFloat32})
                              .Learnable()
                              .OptionalInput("state")
                              .NeverLearnable()
                              .VariadicInput("rest")
                              .Output("new_w")
                              .OptionalOutput("new_state")
                              .Attr("rate", AttributeType::kFloat, true)
                              .NoGradient("updates end a step")
                              .InPlace(0, 0)
                              .Alias(1, 1)
                              .NoOpWhenSameShape()
                              .ValueInputs({2})
                              .Class(OpClass::kBoundary)
                              .Stateful();
  EXPECT_EQ(schema.FullName(), "ai.weft::Update");
  EXPECT_EQ(OpSchema::Onnx("Conv").FullName(), "Conv");
  EXPECT_TRUE(schema.inputs()[0].learnable);
  EXPECT_THAT(schema.inputs()[0].dtypes, ElementsAre(DType::kFloat32));
  EXPECT_TRUE(schema.inputs()[1].optional);
  EXPECT_TRUE(schema.inputs()[1].never_learnable);
  EXPECT_TRUE(schema.outputs()[1].optional);
  EXPECT_TRUE(schema.attributes()[0].required);
  EXPECT_EQ(schema.gradient_kind(), GradientKind::kNone);
  EXPECT_THAT(schema.in_place(), ElementsAre(Pair(0, 0)));
  EXPECT_THAT(schema.aliases(), ElementsAre(Pair(1, 1)));
  EXPECT_TRUE(schema.no_op_when_same_shape());
  EXPECT_THAT(schema.value_inputs(), ElementsAre(2));
  EXPECT_EQ(schema.op_class(), OpClass::kBoundary);
  EXPECT_TRUE(schema.stateful());
}

TEST(OpSchema, VariadicParameterTakesTheRest) {
  const OpSchema variadic = OpSchema::Onnx("Concat").Input("first").VariadicInput("rest");
  EXPECT_EQ(variadic.FormalInput(0)->name, "first");
  EXPECT_EQ(variadic.FormalInput(9)->name, "rest");
  EXPECT_EQ(variadic.FormalOutput(0), nullptr);
  const OpSchema fixed = OpSchema::Onnx("Add").Input("a").Input("b");
  EXPECT_EQ(fixed.FormalInput(1)->name, "b");
  EXPECT_EQ(fixed.FormalInput(2), nullptr);
  EXPECT_EQ(fixed.FormalInput(-1), nullptr);
}

TEST(OpSchema, GradientKinds) {
  EXPECT_EQ(OpSchema::Onnx("A").gradient_kind(), GradientKind::kMissing);
  EXPECT_EQ(OpSchema::Onnx("A")
                .Gradient([](GradientContext&) { return absl::OkStatus(); })
                .gradient_kind(),
            GradientKind::kRule);
}

TEST(OpRegistry, FindsByDomainAndName) {
  OpRegistry registry;
  ASSERT_TRUE(registry.Register(OpSchema::Onnx("Conv")).ok());
  ASSERT_TRUE(registry.Register(OpSchema::Weft("Conv")).ok());
  EXPECT_EQ(registry.Find("", "Conv")->FullName(), "Conv");
  EXPECT_EQ(registry.Find("ai.onnx", "Conv")->FullName(), "Conv");
  EXPECT_EQ(registry.Find("ai.weft", "Conv")->FullName(), "ai.weft::Conv");
  EXPECT_EQ(registry.Find("", "conv"), nullptr);
  EXPECT_EQ(registry.All().size(), 2u);
}

TEST(OpRegistry, SecondRegistrationIsAnError) {
  OpRegistry registry;
  ASSERT_TRUE(registry.Register(OpSchema::Onnx("Conv")).ok());
  const absl::Status status = registry.Register(OpSchema("ai.onnx", "Conv"));
  EXPECT_EQ(status.code(), absl::StatusCode::kAlreadyExists);
}

TEST(OpRegistry, NearestIsWithinAMisspelling) {
  OpRegistry registry;
  for (const char* name : {"Conv", "ConvTranspose", "Softmax", "LogSoftmax"}) {
    ASSERT_TRUE(registry.Register(OpSchema::Onnx(name)).ok());
  }
  EXPECT_EQ(registry.Nearest("", "Konv"), "Conv");
  EXPECT_EQ(registry.Nearest("ai.onnx", "SoftMax"), "Softmax");
  EXPECT_EQ(registry.Nearest("", "ConvTranpose"), "ConvTranspose");
  EXPECT_EQ(registry.Nearest("", "Einsum"), "");
  EXPECT_EQ(registry.Nearest("ai.weft", "Conv"), "");
}

TEST(OpRegistryDeathTest, DuplicateStaticRegistrationDies) {
  EXPECT_DEATH(
      {
        internal::RegisterOpOrDie(OpSchema("test.twice", "Conv"));
        internal::RegisterOpOrDie(OpSchema("test.twice", "Conv"));
      },
      "op test.twice::Conv is registered twice");
}

}  // namespace
}  // namespace weft
