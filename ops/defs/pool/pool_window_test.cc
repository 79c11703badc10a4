// Pools of float32 over random windows, strides, dilations and paddings: the bits of the largest
// elements, their indices and their gradients against loops over windows, averages against the same
// in double.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "ops/testing/op_tester.h"
#include "ops/testing/test_tensors.h"
#include "ops/window.h"

namespace weft::testing {
namespace {

using Ints = std::vector<int64_t>;

const std::string kWeft(kWeftDomain);

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInfinity = std::numeric_limits<float>::infinity();

struct WindowCase {
  Shape x;
  Attributes attributes = {};
  std::vector<WindowAxis> axes = {};
};

// Windows of up to three image axes that fit; often larger than the image, or all in the padding.
class WindowCases {
 public:
  explicit WindowCases(uint64_t seed) : state_(seed) {}

  int64_t Draw(int64_t low, int64_t high) {
    state_ = state_ * 6364136223846793005u + 1442695040888963407u;
    return low + static_cast<int64_t>((state_ >> 33) % static_cast<uint64_t>(high - low + 1));
  }

  WindowCase Next(int64_t largest_image) {
    for (;;) {
      const int64_t rank = Draw(1, 3);
      WindowCase drawn{.x = {Draw(1, 2), Draw(1, 3)}};
      Ints kernel, strides, dilations, pads(2 * rank);
      for (int64_t i = 0; i < rank; ++i) {
        drawn.x.AddDim(Draw(1, i + 1 < rank ? 9 : largest_image));
        kernel.push_back(Draw(1, 6));
        strides.push_back(Draw(1, 5));
        dilations.push_back(Draw(1, 3));
        pads[i] = Draw(0, 1) * Draw(0, 7);
        pads[rank + i] = Draw(0, 1) * Draw(0, 7);
      }
      drawn.attributes = {{"kernel_shape", kernel},
                          {"strides", strides},
                          {"dilations", dilations},
                          {"pads", pads},
                          {"ceil_mode", Draw(0, 1)}};
      if (Resolve(drawn)) return drawn;
    }
  }

  static bool Resolve(WindowCase& drawn) {
    const auto spec = WindowSpec::Create(drawn.attributes, drawn.attributes.Ints("kernel_shape"));
    if (!spec.ok()) return false;
    const auto axes = spec->ResolveAll(drawn.x);
    if (axes.ok()) drawn.axes = *axes;
    return axes.ok();
  }

 private:
  uint64_t state_;
};

// Of one window: the positions of its elements in the plane in row-major order, and how many of its
// elements lie in the image or the padding, and not behind it.
struct WindowElements {
  Ints positions;
  int64_t counted = 0;
};

WindowElements ElementsOf(const std::vector<WindowAxis>& axes, int64_t output) {
  std::vector<int64_t> o(axes.size());
  for (size_t i = axes.size(); i-- > 0; output /= axes[i].output) o[i] = output % axes[i].output;
  int64_t taps = 1;
  for (const WindowAxis& axis : axes) taps *= axis.kernel;
  WindowElements elements;
  for (int64_t tap = 0; tap < taps; ++tap) {
    int64_t position = 0;
    bool inside = true;
    bool counted = true;
    int64_t rest = taps;
    for (size_t i = 0; i < axes.size(); ++i) {
      rest /= axes[i].kernel;
      const int64_t t = tap / rest % axes[i].kernel;
      const int64_t at = o[i] * axes[i].stride - axes[i].pad_begin + t * axes[i].dilation;
      inside = inside && at >= 0 && at < axes[i].input;
      counted = counted && at < axes[i].input + axes[i].pad_end;
      position = position * axes[i].input + at;
    }
    if (inside) elements.positions.push_back(position);
    if (counted) ++elements.counted;
  }
  return elements;
}

struct Planes {
  int64_t count;
  int64_t input = 1;
  int64_t output = 1;
  Shape y;

  explicit Planes(const WindowCase& window)
      : count(window.x.dim(0) * window.x.dim(1)), y{window.x.dim(0), window.x.dim(1)} {
    for (const WindowAxis& axis : window.axes) {
      input *= axis.input;
      output *= axis.output;
      y.AddDim(axis.output);
    }
  }
};

// fn(plane, output in the plane, elements of its window)
template <typename Fn>
void ForEachWindowOf(const WindowCase& window, Fn fn) {
  const Planes planes(window);
  for (int64_t o = 0; o < planes.output; ++o) {
    const WindowElements elements = ElementsOf(window.axes, o);
    for (int64_t p = 0; p < planes.count; ++p) fn(p, o, elements);
  }
}

// Values of which many are equal, among them both zeros, infinities and a NaN.
Tensor FewValues(const Shape& shape, WindowCases& random, bool with_nan) {
  Tensor x = *Tensor::Allocate(DType::kFloat32, shape);
  const float values[] = {-kInfinity, -1.0f, -0.0f, 0.0f, -0.0f, 0.0f, -2.0f, 0.5f, kInfinity};
  const int64_t highest = random.Draw(0, 8);  // windows of low values too
  for (float& value : x.mutable_data<float>()) {
    value = with_nan && random.Draw(0, 20) == 0 ? kNan : values[random.Draw(0, highest)];
  }
  return x;
}

::testing::AssertionResult SameBits(const Tensor& actual, const Tensor& expected) {
  if (!(actual.shape() == expected.shape()) || actual.dtype() != expected.dtype()) {
    return ::testing::AssertionFailure() << "another type";
  }
  if (std::memcmp(actual.raw_data(), expected.raw_data(), expected.bytes()) == 0) {
    return ::testing::AssertionSuccess();
  }
  return ::testing::AssertionFailure() << TensorsNear(actual, expected, {0, 0, 0}).message();
}

// Y and Indices of MaxPool: the first of the largest elements, or the last NaN.
std::vector<Tensor> LargestOf(const WindowCase& window, const Tensor& x) {
  const Planes planes(window);
  Tensor y = *Tensor::Allocate(DType::kFloat32, planes.y);
  Tensor indices = *Tensor::Allocate(DType::kInt64, planes.y);
  ForEachWindowOf(window, [&](int64_t p, int64_t o, const WindowElements& elements) {
    float best = -kInfinity;
    int64_t where = -1;
    for (const int64_t position : elements.positions) {
      const float value = x.data<float>()[p * planes.input + position];
      if (where >= 0 && !(value > best) && !std::isnan(value)) continue;
      best = value;
      where = p * planes.input + position;
    }
    y.mutable_data<float>()[p * planes.output + o] = best;
    indices.mutable_data<int64_t>()[p * planes.output + o] = where;
  });
  return {y, indices};
}

Tensor LargestGradientOf(const WindowCase& window, const Tensor& x, const Tensor& y,
                         const Tensor& dy) {
  const Planes planes(window);
  Tensor dx = *Tensor::Zeros(DType::kFloat32, window.x);
  ForEachWindowOf(window, [&](int64_t p, int64_t o, const WindowElements& elements) {
    if (elements.positions.empty()) return;
    const int64_t out = p * planes.output + o;
    int64_t where = elements.positions.back();
    for (const int64_t position : elements.positions) {
      if (x.data<float>()[p * planes.input + position] != y.data<float>()[out]) continue;
      where = position;
      break;
    }
    dx.mutable_data<float>()[p * planes.input + where] += dy.data<float>()[out];
  });
  return dx;
}

void ExpectLargest(const WindowCase& window, const Tensor& x) {
  const std::vector<Tensor> expected = LargestOf(window, x);
  for (const int threads : {1, 2}) {
    OpCase pool{.op = "MaxPool", .attributes = window.attributes, .inputs = {x}};
    const auto y = RunOp(pool, Kernels::kProduction, threads);
    ASSERT_TRUE(y.ok()) << y.status();
    EXPECT_TRUE(SameBits((*y)[0], expected[0]));
    pool.outputs = {true, true};
    const auto both = RunOp(pool, Kernels::kProduction, threads);
    ASSERT_TRUE(both.ok()) << both.status();
    EXPECT_TRUE(SameBits((*both)[0], expected[0]));
    EXPECT_TRUE(SameBits((*both)[1], expected[1]));
  }
}

void ExpectLargestGradient(const WindowCase& window, const Tensor& x, const Tensor& y) {
  const Tensor dy = RandomTensor(Planes(window).y, 5);
  const OpCase gradient{
      .domain = kWeft, .op = "MaxPoolGrad", .attributes = window.attributes, .inputs = {x, y, dy}};
  const Tensor expected = LargestGradientOf(window, x, y, dy);
  for (const int threads : {1, 2}) {
    const auto dx = RunOp(gradient, Kernels::kProduction, threads);
    ASSERT_TRUE(dx.ok()) << dx.status();
    EXPECT_TRUE(SameBits((*dx)[0], expected));
  }
}

// AveragePool and its gradient.
void ExpectAverages(WindowCase window, bool count_padding) {
  window.attributes.Set("count_include_pad", int64_t{count_padding});
  const Planes planes(window);
  const Tensor x = RandomTensor(window.x, 7);
  const Tensor dy = RandomTensor(planes.y, 8);
  std::vector<double> y(dy.num_elements());
  std::vector<double> dx(x.num_elements());
  ForEachWindowOf(window, [&](int64_t p, int64_t o, const WindowElements& elements) {
    const int64_t out = p * planes.output + o;
    const int64_t count =
        count_padding ? elements.counted : static_cast<int64_t>(elements.positions.size());
    for (const int64_t position : elements.positions) {
      const int64_t in = p * planes.input + position;
      y[out] += static_cast<double>(x.data<float>()[in]) / static_cast<double>(count);
      dx[in] += static_cast<double>(dy.data<float>()[out]) / static_cast<double>(count);
    }
  });
  const OpCase pool{.op = "AveragePool", .attributes = window.attributes, .inputs = {x}};
  EXPECT_TRUE(ExpectOutputs(pool, {Cast(Tensor::Of<double>(planes.y, y), DType::kFloat32)}));
  EXPECT_TRUE(SameBitsOnTwoThreads(pool));
  const OpCase gradient{.domain = kWeft,
                        .op = "AveragePoolGrad",
                        .attributes = window.attributes,
                        .inputs = {dy, Int64s({window.x.dims().begin(), window.x.dims().end()})}};
  EXPECT_TRUE(ExpectOutputs(gradient, {Cast(Tensor::Of<double>(window.x, dx), DType::kFloat32)}));
  EXPECT_TRUE(SameBitsOnTwoThreads(gradient));
}

std::string TextOf(const WindowCase& window) {
  return OpCase{.op = "Pool", .attributes = window.attributes, .inputs = {}}.ToString() + " of " +
         window.x.ToString();
}

TEST(PoolWindowTest, LargestElementsAndTheirPlacesAreThoseOfALoop) {
  WindowCases random(1);
  for (int i = 0; i < 300; ++i) {
    const WindowCase window = random.Next(40);
    SCOPED_TRACE(TextOf(window));
    ExpectLargest(window, FewValues(window.x, random, i % 2 == 0));
    if (HasFailure()) return;
  }
}

TEST(PoolWindowTest, GradientsOfTheLargestAreThoseOfALoop) {
  WindowCases random(2);
  for (int i = 0; i < 200; ++i) {
    const WindowCase window = random.Next(40);
    SCOPED_TRACE(TextOf(window));
    const Tensor x = FewValues(window.x, random, i % 2 == 0);
    ExpectLargestGradient(window, x, LargestOf(window, x)[0]);
    // A Y that is not the largest: what equals it further on, or nothing.
    ExpectLargestGradient(window, x, FewValues(Planes(window).y, random, false));
    if (HasFailure()) return;
  }
}

TEST(PoolWindowTest, AveragesAndTheirGradientsAreThoseOfALoop) {
  WindowCases random(3);
  for (int i = 0; i < 200; ++i) {
    const WindowCase window = random.Next(40);
    SCOPED_TRACE(TextOf(window));
    ExpectAverages(window, i % 2 == 0);
    if (HasFailure()) return;
  }
}

// Rows and planes that are cut into several tiles.
TEST(PoolWindowTest, LargePlanesAreThoseOfALoop) {
  WindowCases random(4);
  const Ints pads = {1, 2, 2, 1};
  for (const Shape& shape : {Shape{1, 2, 3, 5000}, Shape{1, 1, 900, 70}, Shape{1, 1, 130, 2100}}) {
    for (const int64_t stride : {1, 2, 3}) {
      WindowCase window{.x = shape};
      window.attributes = {
          {"kernel_shape", Ints{3, 5}}, {"strides", Ints{stride, stride}}, {"pads", pads}};
      ASSERT_TRUE(WindowCases::Resolve(window));
      SCOPED_TRACE(TextOf(window));
      const Tensor x = FewValues(window.x, random, true);
      ExpectLargest(window, x);
      if (shape.dim(3) < 2000) ExpectLargestGradient(window, x, LargestOf(window, x)[0]);
      ExpectAverages(window, stride == 2);
    }
  }
}

// The square windows of spatial pyramids, and windows as large as the image.
TEST(PoolWindowTest, WideWindowsAreThoseOfALoop) {
  WindowCases random(5);
  for (const int64_t size : {5, 9, 13, 20}) {
    WindowCase window{.x = {1, 3, 20, 20}};
    const int64_t pad = size == 20 ? 0 : size / 2;
    window.attributes = {{"kernel_shape", Ints{size, size}}, {"pads", Ints{pad, pad, pad, pad}}};
    ASSERT_TRUE(WindowCases::Resolve(window));
    SCOPED_TRACE(TextOf(window));
    const Tensor x = FewValues(window.x, random, true);
    ExpectLargest(window, x);
    ExpectLargestGradient(window, x, LargestOf(window, x)[0]);
    ExpectAverages(window, true);
  }
}

// In rows that are cut into tiles, gradients are added a tile at a time.
TEST(PoolWindowTest, GradientsOfLongRowsAreTheSums) {
  WindowCase window{.x = {1, 2, 2, 5000}};
  window.attributes = {{"kernel_shape", Ints{2, 4}}, {"pads", Ints{1, 0, 0, 2}}};
  ASSERT_TRUE(WindowCases::Resolve(window));
  const Tensor x = RandomDistinct(window.x, 3);
  const Tensor y = LargestOf(window, x)[0];
  const Tensor dy = RandomTensor(y.shape(), 5);
  const OpCase gradient{
      .domain = kWeft, .op = "MaxPoolGrad", .attributes = window.attributes, .inputs = {x, y, dy}};
  EXPECT_TRUE(ExpectOutputs(gradient, {LargestGradientOf(window, x, y, dy)}));
  EXPECT_TRUE(SameBitsOnTwoThreads(gradient));
}

TEST(PoolWindowTest, WholePlanesAreThoseOfALoop) {
  WindowCases random(6);
  for (const int64_t size : {1, 3, 7, 13, 16, 33, 50}) {
    WindowCase window{.x = {2, 5, size, 7}};
    window.attributes = {{"kernel_shape", Ints{size, 7}}};
    ASSERT_TRUE(WindowCases::Resolve(window));
    SCOPED_TRACE(TextOf(window));
    for (const bool with_nan : {false, true}) {
      for (int i = 0; i < 10; ++i) {
        const Tensor x = FewValues(window.x, random, with_nan);
        const Tensor y = LargestOf(window, x)[0];
        const auto global = RunOp({.op = "GlobalMaxPool", .inputs = {x}});
        ASSERT_TRUE(global.ok()) << global.status();
        EXPECT_TRUE(SameBits((*global)[0], y));
        ExpectLargest(window, x);
      }
    }
    ExpectAverages(window, false);
    const Tensor x = RandomTensor(window.x, 3);
    EXPECT_TRUE(CheckKernelAgainstReference({.op = "GlobalAveragePool", .inputs = {x}}));
    EXPECT_TRUE(CheckKernelAgainstReference(
        {.domain = kWeft,
         .op = "GlobalAveragePoolGrad",
         .inputs = {RandomTensor({2, 5, 1, 1}, 4), Int64s({2, 5, size, 7})}}));
  }
}

}  // namespace
}  // namespace weft::testing
