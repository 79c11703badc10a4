#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "ops/testing/expanded_op.h"
#include "ops/testing/op_tester.h"
#include "ops/testing/test_tensors.h"

namespace weft::testing {
namespace {

using Ints = std::vector<int64_t>;

double At(const Tensor& tensor, int64_t i) { return tensor.data<float>()[i]; }

// Two groups of one input channel and two output channels each; strides 2 and 1, a row of padding
// above and a column to the right.
TEST(NhwcConv, SumsWindowsOfChannelsLast) {
  const Tensor x = RandomTensor({2, 4, 3, 2}, 1), w = RandomTensor({4, 2, 2, 1}, 2);
  const Tensor bias = RandomTensor({4}, 3);
  std::vector<float> expected;
  for (int64_t n = 0; n < 2; ++n) {
    for (int64_t row = 0; row < 2; ++row) {
      for (int64_t column = 0; column < 3; ++column) {
        for (int64_t m = 0; m < 4; ++m) {
          double sum = At(bias, m);
          for (int64_t i = 0; i < 4; ++i) {
            const int64_t y = 2 * row - 1 + i / 2, z = column + i % 2;
            if (y < 0 || y >= 4 || z >= 3) continue;
            sum += At(x, ((n * 4 + y) * 3 + z) * 2 + m / 2) * At(w, m * 4 + i);
          }
          expected.push_back(static_cast<float>(sum));
        }
      }
    }
  }
  const auto outputs = RunExpanded({.domain = "com.microsoft",
                                    .op = "NhwcConv",
                                    .attributes = {{"group", int64_t{2}},
                                                   {"strides", Ints{2, 1}},
                                                   {"pads", Ints{1, 0, 0, 1}},
                                                   {"kernel_shape", Ints{2, 2}}},
                                    .inputs = {x, w, bias}});
  ASSERT_TRUE(outputs.ok()) << outputs.status();
  EXPECT_TRUE(TensorsNear(outputs->front(), Tensor::Of<float>({2, 2, 3, 4}, expected),
                          {.of_magnitude = 1e-5}));
}

TEST(NhwcConv, SaysWhichChannelsDoNotFit) {
  const auto outputs =
      RunExpanded({.domain = "com.microsoft",
                   .op = "NhwcConv",
                   .inputs = {RandomTensor({1, 4, 3, 2}, 1), RandomTensor({4, 2, 2, 5}, 2)}});
  ASSERT_FALSE(outputs.ok());
  EXPECT_NE(std::string(outputs.status().message()).find("X has 2 channels"), std::string::npos)
      << outputs.status();
}

}  // namespace
}  // namespace weft::testing
