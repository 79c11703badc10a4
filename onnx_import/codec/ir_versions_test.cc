#include "onnx_import/codec/ir_versions.h"

#include "gtest/gtest.h"
#include "onnx_import/codec/model_validator.h"

namespace weft {
namespace {

// A row of the table of ONNX's releases (docs/Versioning.md there).
struct OnnxRelease {
  const char* name;
  int64_t ir_version;
  int64_t onnx;
  int64_t classical_models;
};

// The first release with each operator set.
constexpr OnnxRelease kReleases[] = {
    {"1.0", 3, 1, 1},    {"1.1", 3, 5, 1},    {"1.1.2", 3, 6, 1},  {"1.2", 3, 7, 1},
    {"1.3", 3, 8, 1},    {"1.4.1", 4, 9, 1},  {"1.5", 5, 10, 1},   {"1.6", 6, 11, 2},
    {"1.7", 7, 12, 2},   {"1.8", 7, 13, 2},   {"1.9", 7, 14, 2},   {"1.10", 8, 15, 2},
    {"1.11", 8, 16, 3},  {"1.12", 8, 17, 3},  {"1.13", 8, 18, 3},  {"1.14", 9, 19, 3},
    {"1.15", 9, 20, 4},  {"1.16", 10, 21, 5}, {"1.17", 10, 22, 5}, {"1.18", 11, 23, 5},
    {"1.19", 12, 24, 5}, {"1.20", 13, 25, 5}, {"1.21", 13, 26, 5}, {"1.22", 13, 27, 5},
    {"1.23", 14, 28, 5},
};

TEST(IrVersions, AreThoseOfTheReleases) {
  int64_t newest_of_classical_models = 0;
  for (const OnnxRelease& release : kReleases) {
    EXPECT_EQ(IrVersionOfOpset("", release.onnx), release.ir_version) << release.name;
    if (release.classical_models > newest_of_classical_models) {  // the first release with it
      EXPECT_EQ(IrVersionOfOpset("ai.onnx.ml", release.classical_models), release.ir_version)
          << release.name;
      newest_of_classical_models = release.classical_models;
    }
  }
  EXPECT_EQ(IrVersionOfOpset("ai.onnx.training", 1), 7);  // with ONNX 1.7
  EXPECT_EQ(IrVersionOfOpset("ai.onnx.preview.training", 1), 7);
}

TEST(IrVersions, GrowWithTheOperatorSet) {
  for (int64_t opset = kOldestOpset; opset < kNewestOpset; ++opset) {
    EXPECT_LE(IrVersionOfOpset("", opset), IrVersionOfOpset("", opset + 1)) << opset;
  }
}

TEST(IrVersions, OfLaterSetsAreTheNewestKnown) {
  EXPECT_EQ(IrVersionOfOpset("", kNewestOpset + 1), kNewestIrVersion);
  EXPECT_EQ(IrVersionOfOpset("ai.onnx.ml", 6), kNewestIrVersion);
  EXPECT_EQ(IrVersionOfOpset("ai.onnx.training", 2), kNewestIrVersion);
}

TEST(IrVersions, OfOperatorsThatNoReleaseHasAreTheOldest) {
  EXPECT_EQ(IrVersionOfOpset("com.example", 7), kOldestIrVersion);
}

}  // namespace
}  // namespace weft
