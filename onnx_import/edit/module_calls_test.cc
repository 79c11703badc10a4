#include "onnx_import/edit/module_calls.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace weft {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::Pair;

TEST(FindModuleCalls, NumbersCountTheCallsOfAModule) {
  EXPECT_THAT(FindModuleCalls({{"layers.0.norm", {1, 2}},
                               {"layers.0.norm_1", {1, 2}},
                               {"layers.0.norm_2", {2}},
                               {"layers.1.norm_1", {1, 2}}},
                              {"layers.0.norm.weight", "layers.0.norm.bias"}),
              ElementsAre(Pair("layers.0.norm_1", "layers.0.norm"),
                          Pair("layers.0.norm_2", "layers.0.norm")));
}

TEST(FindModuleCalls, AModuleWithParametersOfItsNameIsNoCall) {
  EXPECT_THAT(FindModuleCalls({{"norm", {1}}, {"norm_1", {1}}, {"norm_2", {1}}},
                              {"norm.weight", "norm_1.bias"}),
              ElementsAre(Pair("norm_2", "norm")));
  EXPECT_THAT(FindModuleCalls({{"norm", {1}}, {"norm_1", {1}}}, {"norm_10.bias", "norm_1"}),
              ElementsAre(Pair("norm_1", "norm")))
      << "of another module";
}

TEST(FindModuleCalls, AModuleWithTensorsOfItsOwnIsNoCall) {
  EXPECT_THAT(FindModuleCalls({{"fc", {1, 2}}, {"fc_1", {2, 3}}}, {"fc.bias"}), IsEmpty());
}

TEST(FindModuleCalls, CallsAreCountedFromOneWithoutGaps) {
  EXPECT_THAT(FindModuleCalls({{"norm", {1}}, {"norm_2", {1}}, {"norm_3", {1}}}, {}), IsEmpty());
  EXPECT_THAT(FindModuleCalls({{"norm", {1}}, {"norm_01", {1}}, {"norm_0", {1}}}, {}), IsEmpty());
  EXPECT_THAT(FindModuleCalls({{"norm", {1}}, {"norm_99999999999", {1}}, {"norm_", {1}}}, {}),
              IsEmpty());
  EXPECT_THAT(FindModuleCalls({{"", {1}}, {"_1", {1}}}, {}), IsEmpty());
}

}  // namespace
}  // namespace weft
