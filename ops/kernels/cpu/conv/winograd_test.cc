// Winograd's convolution against loops in double over its definition, and its rounding errors
// against those of the same loops in float32.
#include "ops/kernels/cpu/conv/winograd.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "ops/concrete_node.h"
#include "ops/testing/op_tester.h"
#include "ops/testing/test_tensors.h"

namespace weft::cpu {
namespace {

using testing::OpCase;
using testing::RandomTensor;
using Ints = std::vector<int64_t>;

// Sizes of a convolution with windows of 3x3.
struct Sizes {
  int64_t batch;
  int64_t input_channels;
  int64_t output_channels;
  int64_t height;
  int64_t width;
  Ints pads;  // top, left, bottom, right

  int64_t output_height() const { return height + pads[0] + pads[2] - 2; }
  int64_t output_width() const { return width + pads[1] + pads[3] - 2; }
  Shape x() const { return {batch, input_channels, height, width}; }
  Shape w() const { return {output_channels, input_channels, 3, 3}; }
  Shape y() const { return {batch, output_channels, output_height(), output_width()}; }
  std::string ToString() const {
    return absl::StrCat(x().ToString(), " with ", w().ToString(), " to ", y().ToString());
  }
};

OpCase CaseOf(const Sizes& sizes, bool bias, float low = -1) {
  OpCase conv{.op = "Conv",
              .attributes = {{"pads", sizes.pads}},
              .inputs = {RandomTensor(sizes.x(), 1, low, 1), RandomTensor(sizes.w(), 2)}};
  if (bias) conv.inputs.push_back(RandomTensor({sizes.output_channels}, 3));
  return conv;
}

// The definition, each output summed in one order in type T.
template <typename T>
std::vector<double> Definition(const Sizes& sizes, const OpCase& conv) {
  const auto x = conv.inputs[0].data<float>();
  const auto w = conv.inputs[1].data<float>();
  std::vector<double> y;
  const auto sum = [&](int64_t n, int64_t k, int64_t i, int64_t j) {
    T total = 0;
    for (int64_t c = 0; c < sizes.input_channels; ++c) {
      for (int64_t r = 0; r < 3; ++r) {
        for (int64_t s = 0; s < 3; ++s) {
          const int64_t h = i + r - sizes.pads[0];
          const int64_t v = j + s - sizes.pads[1];
          if (h < 0 || h >= sizes.height || v < 0 || v >= sizes.width) continue;
          const int64_t plane = n * sizes.input_channels + c;
          total += static_cast<T>(x[(plane * sizes.height + h) * sizes.width + v]) *
                   static_cast<T>(w[((k * sizes.input_channels + c) * 3 + r) * 3 + s]);
        }
      }
    }
    return total + (conv.inputs.size() > 2 ? static_cast<T>(conv.inputs[2].data<float>()[k]) : 0);
  };
  for (int64_t n = 0; n < sizes.batch; ++n) {
    for (int64_t k = 0; k < sizes.output_channels; ++k) {
      for (int64_t i = 0; i < sizes.output_height(); ++i) {
        for (int64_t j = 0; j < sizes.output_width(); ++j) y.push_back(sum(n, k, i, j));
      }
    }
  }
  return y;
}

// The node, whose filters are constant if asked so.
class Context final : public PrepareContext {
 public:
  Context(const ConcreteNode& node, bool constant) : node_(node), constant_(constant) {}
  const Node& node() const override { return node_.node(); }
  const Shape& InputShape(int i) const override { return node_.InputShape(i); }
  const Shape& OutputShape(int i) const override { return node_.OutputShape(i); }
  DType InputDType(int i) const override { return node_.InputDType(i); }
  DType OutputDType(int i) const override { return node_.OutputDType(i); }
  const Tensor* InputValue(int i) const override { return node_.InputValue(i); }
  const OperandSlice& InputSlice(int i) const override { return node_.InputSlice(i); }
  const OperandSlice& OutputSlice(int i) const override { return node_.OutputSlice(i); }
  Device& device() const override { return node_.device(); }
  int threads() const override { return node_.threads(); }
  bool strict() const override { return node_.strict(); }
  bool InputIsConstant(int i) const override { return constant_ && i == 1; }

 private:
  const ConcreteNode& node_;
  const bool constant_;
};

struct How {
  int64_t m = 4;
  int threads = 1;
  bool constant = false;
  WinogradCut cut = {};
};

WinogradConv ForwardOf(const Sizes& sizes, bool bias) {
  WinogradConv conv;
  conv.tiles = {.batch = sizes.batch,
                .input_channels = sizes.input_channels,
                .output_channels = sizes.output_channels,
                .input_height = sizes.height,
                .input_width = sizes.width,
                .output_height = sizes.output_height(),
                .output_width = sizes.output_width(),
                .pad_top = sizes.pads[0],
                .pad_left = sizes.pads[1]};
  conv.filters = {.output_channels = sizes.output_channels,
                  .input_channels = sizes.input_channels,
                  .output_step = sizes.input_channels * 9,
                  .input_step = 9};
  conv.bias = bias;
  return conv;
}

// Runs twice, the second time with filters that are kept, into a workspace of NaNs.
std::vector<float> RunWinograd(const Sizes& sizes, const OpCase& conv, const How& how) {
  const testing::SingleNodeGraph single = testing::MakeSingleNodeGraph(conv);
  NodeRunOptions options;
  options.threads = how.threads;
  const auto node = ConcreteNode::Create(single.graph->node(single.node), conv.inputs, options);
  EXPECT_TRUE(node.ok()) << node.status();
  WinogradConv winograd = ForwardOf(sizes, conv.inputs.size() > 2);
  winograd.tiles.m = how.m;
  winograd.cut = how.cut;
  const auto kernel = MakeWinogradConv(Context(*node, how.constant), winograd);
  EXPECT_TRUE(kernel.ok()) << kernel.status();
  std::vector<const void*> inputs;
  for (const Tensor& input : conv.inputs) inputs.push_back(input.raw_data());
  Tensor y = *Tensor::Zeros(DType::kFloat32, sizes.y());
  const int64_t bytes = static_cast<int64_t>((*kernel)->workspace_bytes());
  Tensor workspace = *Tensor::Zeros(DType::kUint8, Shape{bytes});
  void* const output = y.raw_data();
  KernelContext context;
  context.inputs = inputs.data();
  context.outputs = &output;
  context.workspace = workspace.raw_data();
  for (int run = 0; run < 2; ++run) {
    std::memset(workspace.raw_data(), 0xff, static_cast<size_t>(bytes));
    EXPECT_TRUE((*kernel)->Run(context).ok());
  }
  const auto values = y.data<float>();
  return std::vector<float>(values.begin(), values.end());
}

// Root mean square of the differences, over that of the expected values.
template <typename T>
double RelativeError(const std::vector<T>& actual, const std::vector<double>& expected) {
  double error = 0;
  double magnitude = 0;
  for (size_t i = 0; i < expected.size(); ++i) {
    const double difference = static_cast<double>(actual[i]) - expected[i];
    error += difference * difference;
    magnitude += expected[i] * expected[i];
  }
  return std::sqrt(error / magnitude);
}

void ExpectDefinition(const Sizes& sizes, const How& how, bool bias = true) {
  const OpCase conv = CaseOf(sizes, bias);
  const std::vector<float> actual = RunWinograd(sizes, conv, how);
  const std::vector<double> expected = Definition<double>(sizes, conv);
  ASSERT_EQ(actual.size(), expected.size());
  double largest = 0;
  for (const double value : expected) largest = std::max(largest, std::abs(value));
  for (size_t i = 0; i < expected.size(); ++i) {
    ASSERT_NEAR(actual[i], expected[i], 4e-6 * largest)
        << "element " << i << " of " << sizes.ToString() << " with tiles of " << how.m;
  }
}

class WinogradTest : public ::testing::TestWithParam<int64_t> {
 protected:
  void SetUp() override {
    if (WinogradVectorsHere().lanes == 0) GTEST_SKIP() << "neither AVX2 nor AVX-512";
  }
};

TEST_P(WinogradTest, AgreesWithTheDefinition) {
  const Sizes all[] = {
      {1, 16, 16, 8, 8, {1, 1, 1, 1}},   {2, 17, 19, 9, 5, {1, 1, 1, 1}},
      {3, 5, 3, 7, 7, {0, 0, 0, 0}},     {1, 1, 1, 3, 3, {0, 0, 0, 0}},
      {1, 1, 1, 1, 1, {1, 1, 1, 1}},     {2, 3, 9, 13, 31, {2, 0, 1, 3}},
      {1, 32, 24, 20, 67, {0, 1, 2, 0}}, {5, 8, 8, 6, 4, {1, 1, 1, 1}},
      {1, 4, 5, 1, 40, {1, 1, 1, 1}},    {1, 2, 2, 40, 1, {1, 1, 1, 1}},
      {2, 4, 4, 3, 3, {9, 7, 6, 8}},     {7, 40, 33, 14, 14, {1, 1, 1, 1}},
      {1, 3, 64, 58, 58, {1, 1, 1, 1}},  {33, 6, 7, 7, 7, {1, 1, 1, 1}},
  };
  for (const Sizes& sizes : all) {
    ExpectDefinition(sizes, {.m = GetParam()});
    ExpectDefinition(sizes, {.m = GetParam(), .threads = 2, .constant = true}, false);
  }
}

// The bits of a sample do not depend on the batch, the threads, the cut or whether filters are
// kept.
TEST_P(WinogradTest, BitsDoNotDependOnTheCut) {
  const Sizes sizes{5, 20, 70, 15, 22, {1, 1, 0, 2}};
  const OpCase conv = CaseOf(sizes, true);
  const std::vector<float> expected = RunWinograd(sizes, conv, {.m = GetParam()});
  for (const WinogradCut cut : {WinogradCut{}, WinogradCut{16, 8}, WinogradCut{48, 24},
                                WinogradCut{33, 70}, WinogradCut{1000, 16}}) {
    for (const int threads : {1, 2, 3}) {
      const How how{.m = GetParam(), .threads = threads, .constant = threads == 2, .cut = cut};
      EXPECT_EQ(RunWinograd(sizes, conv, how), expected)
          << cut.tiles << " tiles, " << cut.channels << " channels, " << threads << " threads";
    }
  }
  Sizes one = sizes;
  one.batch = 1;
  for (int64_t n = 0; n < sizes.batch; ++n) {
    OpCase sample = conv;
    const int64_t elements = one.x().num_elements();
    const auto all = conv.inputs[0].data<float>();
    sample.inputs[0] = *Tensor::Zeros(DType::kFloat32, one.x());
    std::copy_n(all.begin() + n * elements, elements,
                sample.inputs[0].mutable_data<float>().begin());
    const std::vector<float> alone = RunWinograd(one, sample, {.m = GetParam()});
    const int64_t outputs = one.y().num_elements();
    EXPECT_TRUE(std::equal(alone.begin(), alone.end(), expected.begin() + n * outputs)) << n;
  }
}

TEST_P(WinogradTest, NansStayInTheirTiles) {
  const Sizes sizes{1, 2, 2, 12, 12, {1, 1, 1, 1}};
  OpCase conv = CaseOf(sizes, false);
  conv.inputs[0].mutable_data<float>()[0] = std::nanf("");
  const std::vector<float> y = RunWinograd(sizes, conv, {.m = GetParam()});
  EXPECT_TRUE(std::isnan(y[0]));
  for (int64_t i = 0; i < 12; ++i) EXPECT_FALSE(std::isnan(y[11 * 12 + i])) << i;
}

// Errors are what WinogradError says, within a factor, also where inputs have a mean, and beside
// those of the definition in float32.
TEST_P(WinogradTest, ErrorsAreAsPredicted) {
  for (const int64_t channels : {16, 64, 512}) {
    for (const float low : {-1.0f, 0.0f}) {
      const Sizes sizes{1, channels, 16, 12, 12, {1, 1, 1, 1}};
      const OpCase conv = CaseOf(sizes, false, low);
      const std::vector<double> exact = Definition<double>(sizes, conv);
      const double error = RelativeError(RunWinograd(sizes, conv, {.m = GetParam()}), exact);
      const double direct = RelativeError(Definition<float>(sizes, conv), exact);
      const double predicted = WinogradError(GetParam(), channels);
      EXPECT_LT(error, predicted) << channels << " channels from " << low;
      EXPECT_GT(error, predicted / 4) << channels << " channels from " << low;
      EXPECT_LT(error, (GetParam() == 4 ? 3 : 1.2) * direct) << channels;
      EXPECT_LT(direct, WinogradError(1, channels)) << channels;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Tiles, WinogradTest, ::testing::Values(2, 4));

WinogradTiles TilesOf(int64_t batch, int64_t channels, int64_t size) {
  return {4, batch, channels, channels, size, size, size, size, 1, 1};
}

class WinogradRule : public ::testing::Test {
 protected:
  void SetUp() override {
    if (WinogradVectorsHere().lanes == 0) GTEST_SKIP() << "neither AVX2 nor AVX-512";
  }
};

TEST_F(WinogradRule, TakesLayersThatGain) {
  EXPECT_EQ(ChooseWinogradTile(TilesOf(1, 64, 56), true, false), 4);
  EXPECT_EQ(ChooseWinogradTile(TilesOf(8, 256, 28), true, false), 4);
  EXPECT_EQ(ChooseWinogradTile(TilesOf(8, 4, 28), true, false), 0);   // few channels
  EXPECT_EQ(ChooseWinogradTile(TilesOf(1, 512, 4), true, false), 0);  // one tile
  EXPECT_EQ(ChooseWinogradTile(TilesOf(1, 256, 14), true, false), 4);
  EXPECT_EQ(ChooseWinogradTile(TilesOf(1, 256, 14), false, false), 0);  // filters change
}

TEST_F(WinogradRule, TakesSmallErrorsAlone) {
  for (const int64_t channels : {64, 256, 1024, 2048, 65536}) {
    const int64_t m = ChooseWinogradTile(TilesOf(8, channels, 28), true, false);
    const double error = m == 0 ? 0 : WinogradError(m, channels);
    EXPECT_LE(error, kWinogradErrorLimit) << channels;
  }
  EXPECT_EQ(ChooseWinogradTile(TilesOf(8, 1024, 28), true, false), 4);
  EXPECT_EQ(ChooseWinogradTile(TilesOf(8, 2048, 28), true, false), 2);
  EXPECT_EQ(ChooseWinogradTile(TilesOf(8, 65536, 28), true, false), 0);
}

TEST_F(WinogradRule, DoesNotSeeTheBatchInStrictRuns) {
  for (const int64_t channels : {16, 32, 64, 128, 512}) {
    for (const int64_t size : {4, 7, 8, 14, 28, 56}) {
      const int64_t alone = ChooseWinogradTile(TilesOf(1, channels, size), true, true);
      EXPECT_EQ(ChooseWinogradTile(TilesOf(64, channels, size), true, true), alone)
          << channels << " channels of " << size;
    }
  }
  EXPECT_NE(ChooseWinogradTile(TilesOf(64, 512, 4), true, true),
            ChooseWinogradTile(TilesOf(64, 512, 4), true, false));
}

// Through the operator.
TEST(WinogradConvTest, AgreesWithReference) {
  const auto check = [](const Sizes& sizes, bool bias) {
    EXPECT_TRUE(testing::CheckKernelAgainstReference(CaseOf(sizes, bias), {.of_magnitude = 4e-6}))
        << sizes.ToString();
  };
  check({1, 64, 64, 14, 14, {1, 1, 1, 1}}, true);
  check({2, 32, 48, 17, 23, {0, 1, 2, 1}}, false);
  check({6, 64, 33, 28, 28, {1, 1, 1, 1}}, true);
  EXPECT_TRUE(testing::SameBitsOnTwoThreads(CaseOf({3, 64, 64, 28, 28, {1, 1, 1, 1}}, true)));
}

// ---- The gradient of the input.

OpCase GradientCase(const Sizes& sizes) {
  const Shape x = sizes.x();
  return {.domain = std::string(kWeftDomain),
          .op = "ConvGradInput",
          .attributes = {{"kernel_shape", Ints{3, 3}}, {"pads", sizes.pads}},
          .inputs = {RandomTensor(sizes.y(), 4), RandomTensor(sizes.w(), 2),
                     testing::Int64s(Ints(x.dims().begin(), x.dims().end()))}};
}

// Convolutions that take Winograd's algorithm in a strict run, whose filters change.
const Sizes kGradients[] = {{2, 48, 48, 28, 30, {1, 1, 1, 1}},
                            {1, 48, 33, 41, 27, {0, 2, 1, 0}},
                            {1, 64, 64, 24, 28, {4, 3, 5, 6}},
                            {3, 48, 56, 31, 33, {0, 0, 0, 0}}};

TEST(WinogradGradientTest, AgreesWithReference) {
  for (const Sizes& sizes : kGradients) {
    const WinogradTiles taken = {.batch = sizes.batch,
                                 .input_channels = sizes.output_channels,
                                 .output_channels = sizes.input_channels,
                                 .output_height = sizes.height,
                                 .output_width = sizes.width};
    EXPECT_EQ(ChooseWinogradTile(taken, false, true), WinogradVectorsHere().lanes == 0 ? 0 : 4);
    EXPECT_TRUE(testing::CheckKernelAgainstReference(GradientCase(sizes), {.of_magnitude = 4e-6}))
        << sizes.ToString();
  }
  EXPECT_TRUE(testing::SameBitsOnTwoThreads(GradientCase(kGradients[0])));
}

// The sum of dY Y is linear in X: differences of any width give its gradient.
TEST(WinogradGradientTest, AgreesWithDifferences) {
  for (const Sizes& sizes : kGradients) {
    const OpCase gradient = GradientCase(sizes);
    const auto dx = testing::RunOp(gradient);
    ASSERT_TRUE(dx.ok()) << dx.status();
    OpCase conv = CaseOf(sizes, false);
    conv.inputs[1] = gradient.inputs[1];
    const auto dy = gradient.inputs[0].data<float>();
    const auto loss = [&] {
      const std::vector<double> y = Definition<double>(sizes, conv);
      double sum = 0;
      for (size_t i = 0; i < y.size(); ++i) sum += y[i] * static_cast<double>(dy[i]);
      return sum;
    };
    conv.inputs[0] = *Tensor::Zeros(DType::kFloat32, sizes.x());
    const std::span<float> x = conv.inputs[0].mutable_data<float>();
    for (const size_t i : {size_t{0}, x.size() / 3, x.size() - 1}) {
      x[i] = 1;
      EXPECT_NEAR(dx->front().data<float>()[i], loss(), 1e-4) << i << " of " << sizes.ToString();
      x[i] = 0;
    }
  }
}

}  // namespace
}  // namespace weft::cpu
