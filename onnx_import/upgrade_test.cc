// Nodes of older operator sets come out in the newest form. Every case is a model of one node.
#include "onnx_import/upgrade.h"

#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "onnx_import/testing/test_models.h"

namespace weft::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

std::string Upgraded(int opset, const std::string& body) {
  const auto model = Import(ModelOf(opset, body));
  EXPECT_TRUE(model.ok()) << model.status();
  return model.ok() ? model->graph.DebugString() : "";
}

std::string Unary(const std::string& node) {
  return "agraph (float[2,3,4] x) => (float[N] y) { y = " + node + " (x) }";
}

TEST(Upgrade, SqueezeAndUnsqueezeTakeAxesAsInput) {
  EXPECT_THAT(Upgraded(11, Unary("Squeeze <axes = [1, -1]>")),
              AllOf(HasSubstr("constant %Squeeze_0/axes = int64[2]{1, -1}"),
                    HasSubstr("Squeeze(%x, %Squeeze_0/axes)  #")));
  EXPECT_THAT(Upgraded(7, Unary("Unsqueeze <axes = [0]>")),
              HasSubstr("Unsqueeze(%x, %Unsqueeze_0/axes)  #"));
  EXPECT_THAT(Upgraded(11, Unary("Squeeze")), HasSubstr("Squeeze(%x)  #"));
}

TEST(Upgrade, UnsqueezeWithoutAxesIsRefused) {
  EXPECT_THAT(ImportError(ModelOf(11, Unary("Unsqueeze"))),
              HasSubstr("node 'Unsqueeze_0' (Unsqueeze): the required attribute 'axes' (INTS) is "
                        "missing"));
}

TEST(Upgrade, ReductionsTakeAxesAsInputFromTheirOwnVersionOn) {
  EXPECT_THAT(Upgraded(17, Unary("ReduceMean <axes = [1], keepdims = 0>")),
              HasSubstr("ReduceMean(%x, %ReduceMean_0/axes) {keepdims=0}"));
  EXPECT_THAT(Upgraded(11, Unary("ReduceSum <axes = [1]>")),
              HasSubstr("ReduceSum(%x, %ReduceSum_0/axes)"));
  EXPECT_THAT(Upgraded(17, Unary("ReduceMax")), HasSubstr("ReduceMax(%x)"));
}

TEST(Upgrade, SliceTakesItsBoundsAsInputs) {
  EXPECT_THAT(Upgraded(9, Unary("Slice <starts = [1], ends = [2]>")),
              HasSubstr("Slice(%x, %Slice_0/starts, %Slice_0/ends)  #"));
  EXPECT_THAT(Upgraded(9, Unary("Slice <starts = [1], ends = [2], axes = [2]>")),
              HasSubstr("Slice(%x, %Slice_0/starts, %Slice_0/ends, %Slice_0/axes)  #"));
}

TEST(Upgrade, SplitSaysItsSizesOrItsCount) {
  const auto split = [](const std::string& attributes) {
    return "agraph (float[4] x) => (float[N] y, float[M] z) { y, z = Split " + attributes +
           " (x) }";
  };
  EXPECT_THAT(Upgraded(11, split("<split = [1, 3]>")),
              AllOf(HasSubstr("constant %Split_0/split = int64[2]{1, 3}"),
                    HasSubstr("Split(%x, %Split_0/split)  #")));
  EXPECT_THAT(Upgraded(13, split("<axis = 0>")), HasSubstr("Split(%x) {axis=0, num_outputs=2}"));
}

TEST(Upgrade, SoftmaxOverTheLastAxisStaysOneNode) {
  EXPECT_THAT(Upgraded(11, Unary("Softmax <axis = 2>")), HasSubstr("Softmax(%x) {axis=-1}"));
  EXPECT_THAT(Upgraded(11, Unary("LogSoftmax <axis = -1>")), HasSubstr("LogSoftmax(%x) {axis=-1}"));
  EXPECT_THAT(Upgraded(13, Unary("Softmax <axis = 1>")), HasSubstr("Softmax(%x) {axis=1}"));
}

TEST(Upgrade, SoftmaxOverSeveralAxesGoesThroughAMatrix) {
  const std::string text = Upgraded(12, Unary("Softmax"));
  EXPECT_THAT(text, HasSubstr("= Flatten(%x) {axis=1}  # Softmax_0/matrix"));
  EXPECT_THAT(text, HasSubstr("= Softmax(%Softmax_0/matrix) {axis=-1}  # Softmax_0/rows"));
  EXPECT_THAT(text, HasSubstr("= Shape(%x)"));
  EXPECT_THAT(text, HasSubstr("= Reshape(%Softmax_0/rows, %Softmax_0/shape) {allowzero=1}"));
  EXPECT_THAT(text, HasSubstr("output %y"));
}

TEST(Upgrade, DropoutTakesItsRatioAsInput) {
  EXPECT_THAT(Upgraded(10, Unary("Dropout <ratio = 0.25>")),
              AllOf(HasSubstr("constant %Dropout_0/ratio = float32[]{0.25}"),
                    HasSubstr("Dropout(%x, %Dropout_0/ratio)  #")));
}

TEST(Upgrade, ClipTakesItsBoundsAsInputsOfTheDataType) {
  EXPECT_THAT(Upgraded(10, "agraph (double[2] x) => (double[2] y) { y = Clip <max = 6.0> (x) }"),
              AllOf(HasSubstr("constant %Clip_0/max = float64[]{6}"),
                    HasSubstr("Clip(%x, _, %Clip_0/max)  #")));
}

TEST(Upgrade, OperandsAlignedAtAnAxisAreAlignedAtTheRight) {
  const auto add = [](const std::string& attributes, const std::string& b) {
    return "agraph (float[2,3,4] a, " + b + " b) => (float[2,3,4] y) { y = Add " + attributes +
           " (a, b) }";
  };
  EXPECT_THAT(
      Upgraded(6, add("<broadcast = 1, axis = 1>", "float[3]")),
      AllOf(HasSubstr("constant %Add_0/axes = int64[1]{1}"),
            HasSubstr("Unsqueeze(%b, %Add_0/axes)"), HasSubstr("Add(%a, %Add_0/aligned)  #")));
  EXPECT_THAT(Upgraded(6, add("<broadcast = 1, axis = -1>", "float[4]")),
              HasSubstr("Add(%a, %b)  #"));
  EXPECT_THAT(Upgraded(6, add("<broadcast = 1>", "float[3,4]")), HasSubstr("Add(%a, %b)  #"));
  EXPECT_THAT(ImportError(ModelOf(6, add("<broadcast = 1, axis = 2>", "float[3,4]"))),
              HasSubstr("attribute 'axis' is 2, which does not fit operands of rank 3 and 2"));
  // Found by fuzzing: the axes behind B's overflowed.
  EXPECT_THAT(
      ImportError(ModelOf(6, add("<broadcast = 1, axis = -9223372036854775808>", "float[3,4]"))),
      HasSubstr("does not fit operands of rank 3 and 2"));
}

TEST(Upgrade, SlopesPerChannelAreAlignedToTheirAxis) {
  const std::string body =
      "agraph (float[2,3,4,5] x, float[3] s) => (float[2,3,4,5] y) { y = PRelu (x, s) }";
  EXPECT_THAT(Upgraded(6, body), HasSubstr("PRelu(%x, %PRelu_0/aligned)"));
}

TEST(Upgrade, CastsToBfloat16CutOffOnce) {
  EXPECT_THAT(Upgraded(23, Unary("Cast <to = 16>")), HasSubstr("round_mode=\"down\""));
  EXPECT_THAT(Upgraded(23, Unary("Cast <to = 1>")), Not(HasSubstr("round_mode")));
  EXPECT_THAT(Upgraded(24, Unary("Cast <to = 16>")), Not(HasSubstr("round_mode")));
}

TEST(Upgrade, CastsToFourBitsSaturatedOnce) {
  const std::string body = Unary("Cast <to = 22>");
  EXPECT_THAT(Upgraded(23, body), AllOf(HasSubstr("Clip(%x, %Cast_0/low, %Cast_0/high)"),
                                        HasSubstr("Cast(%Cast_0/clipped)")));
  EXPECT_THAT(Upgraded(24, body), HasSubstr("Cast(%x)"));
}

TEST(Upgrade, TopKTakesItsCountAsInput) {
  const std::string body =
      "agraph (float[5] x) => (float[2] v, int64[2] i) { v, i = TopK <k = 2> (x) }";
  EXPECT_THAT(Upgraded(9, body), AllOf(HasSubstr("constant %TopK_0/k = int64[1]{2}"),
                                       HasSubstr("TopK(%x, %TopK_0/k)")));
}

TEST(Upgrade, PadTakesItsWidthsAsInput) {
  EXPECT_THAT(Upgraded(10,
                       "agraph (float[2] x) => (float[4] y) {"
                       "  y = Pad <pads = [1, 1], value = 3.0, mode = \"constant\"> (x) }"),
              HasSubstr("Pad(%x, %Pad_0/pads, %Pad_0/value) {mode=\"constant\"}"));
}

TEST(Upgrade, BatchNormalizationTrainsWhenItsStatisticsAreUsed) {
  const auto norm = [](const std::string& outputs, const std::string& attributes) {
    return "agraph (float[2,3] x, float[3] s, float[3] b, float[3] m, float[3] v) => (float[2,3] y)"
           " { " +
           outputs + " = BatchNormalization " + attributes + " (x, s, b, m, v) }";
  };
  EXPECT_THAT(Upgraded(7, norm("y", "<spatial = 1, epsilon = 0.5>")),
              AllOf(HasSubstr("{epsilon=0.5}"), Not(HasSubstr("training_mode"))));
  EXPECT_THAT(Upgraded(9, norm("y, m2, v2", "")), HasSubstr("{training_mode=1}"));
  EXPECT_THAT(ImportError(ModelOf(7, norm("y, m2, v2", "<spatial = 0>"))),
              HasSubstr("attribute 'spatial' is 0"));
  EXPECT_THAT(ImportError(ModelOf(9, norm("y, m2, v2, m3, v3", ""))),
              HasSubstr("outputs saved_mean or saved_var are used"));
}

TEST(Upgrade, BatchNormalizationPerElementSeesElementsAsChannels) {
  const std::string text =
      Upgraded(7,
               "agraph (float[2,3,4] x, float[3,4] s, float[3,4] b, float[3,4] m, float[3,4] v)"
               " => (float[2,3,4] y) { y = BatchNormalization <spatial = 0> (x, s, b, m, v) }");
  EXPECT_THAT(text, HasSubstr("= Flatten(%x) {axis=1}"));
  EXPECT_THAT(text, HasSubstr("= BatchNormalization(%BatchNormalization_0/flat, "
                              "%BatchNormalization_0/scale, "));
  EXPECT_THAT(text, HasSubstr("= Reshape(%BatchNormalization_0/normal, "));
}

TEST(Upgrade, UpsampleIsAResize) {
  const std::string simple =
      "{coordinate_transformation_mode=\"asymmetric\", mode=\"nearest\", "
      "nearest_mode=\"weft_simple\"}";
  EXPECT_THAT(Upgraded(7, Unary("Upsample <scales = [1.0, 2.0, 2.0], mode = \"nearest\">")),
              AllOf(HasSubstr("constant %Upsample_0/scales = float32[3]{1, 2, 2}"),
                    HasSubstr("Resize(%x, _, %Upsample_0/scales) " + simple)));
  EXPECT_THAT(Upgraded(9,
                       "agraph (float[2] x, float[1] s) => (float[N] y) {"
                       "  y = Upsample <mode = \"linear\"> (x, s) }"),
              HasSubstr("Resize(%x, _, %s) {coordinate_transformation_mode=\"asymmetric\", "
                        "mode=\"linear\"}"));
  EXPECT_THAT(ImportError(ModelOf(7, Unary("Upsample <mode = \"nearest\">"))),
              HasSubstr("the required attribute 'scales' (FLOATS) is missing"));
}

TEST(Upgrade, ResizeOfTwoInputsIsAsymmetric) {
  EXPECT_THAT(Upgraded(10,
                       "agraph (float[2] x, float[1] s) => (float[N] y) {"
                       "  y = Resize <mode = \"linear\"> (x, s) }"),
              HasSubstr("Resize(%x, _, %s) {coordinate_transformation_mode=\"asymmetric\""));
}

TEST(Upgrade, SamplingModesHaveTheirNewNames) {
  EXPECT_THAT(Upgraded(16,
                       "agraph (float[1,1,2,2] x, float[1,2,2,2] g) => (float[1,1,2,2] y) {"
                       "  y = GridSample <mode = \"bicubic\"> (x, g) }"),
              HasSubstr("GridSample(%x, %g) {mode=\"cubic\"}"));
  EXPECT_THAT(Upgraded(10,
                       "agraph (float[1,1,2,2] x, float[1,4] r, int64[1] i) => (float[1,1,1,1] y) {"
                       "  y = RoiAlign (x, r, i) }"),
              HasSubstr("{coordinate_transformation_mode=\"output_half_pixel\"}"));
}

TEST(Upgrade, DftTakesItsAxisAsInput) {
  EXPECT_THAT(
      Upgraded(17, "agraph (float[2,3,1] x) => (float[2,3,2] y) { y = DFT (x) }"),
      AllOf(HasSubstr("constant %DFT_0/axis = int64[]{1}"), HasSubstr("DFT(%x, _, %DFT_0/axis)")));
}

}  // namespace
}  // namespace weft::testing
