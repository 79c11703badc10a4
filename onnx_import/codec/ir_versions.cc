#include "onnx_import/codec/ir_versions.h"

#include <array>
#include <cstddef>
#include <span>

#include "onnx_import/codec/model_validator.h"

namespace weft {
namespace {

// By operator set, from 1 on.
constexpr std::array<int64_t, kNewestOpset> kOfOnnx = {
    3, 3, 3, 3, 3, 3, 3, 3, 4, 5, 6, 7, 7, 7, 8, 8, 8, 8, 9, 9, 10, 10, 11, 12, 13, 13, 13, 14};
static_assert(kOfOnnx.back() == kNewestIrVersion);
constexpr std::array<int64_t, 5> kOfClassicalModels = {3, 6, 8, 9, 10};
constexpr std::array<int64_t, 1> kOfTraining = {7};

int64_t Find(std::span<const int64_t> versions, int64_t opset) {
  const auto index = static_cast<size_t>(opset - 1);
  return index < versions.size() ? versions[index] : kNewestIrVersion;
}

}  // namespace

int64_t IrVersionOfOpset(std::string_view domain, int64_t version) {
  if (domain.empty()) return Find(kOfOnnx, version);
  if (domain == "ai.onnx.ml") return Find(kOfClassicalModels, version);
  if (domain == "ai.onnx.training" || domain == "ai.onnx.preview.training") {
    return Find(kOfTraining, version);
  }
  return kOldestIrVersion;
}

}  // namespace weft
