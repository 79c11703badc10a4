#include "ops/kernels/cuda/dnn/testing/recorded_normalization.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <utility>

#include "absl/strings/str_cat.h"
#include "ops/kernels/cuda/language/launch.h"
#include "ops/kernels/cuda/language/scalar.h"
#include "ops/testing/emulator/emulated_launch.h"

namespace weft::testing {
namespace {

constexpr int kNormalizationDnnThreads = 64;
constexpr int64_t kMaxNormalizationDnnBlocks = 8;

// T: of x. P: of the parameters. An element is [outer, inner, h, w]; inner is its scale.
template <typename T, typename P>
struct RecordedNormalizationBody {
  const T* x;
  const P* scale;
  const P* bias;
  const T* dy;
  float* mean;
  float* inverse;
  T* result;
  P* dscale;
  P* dbias;
  unsigned char* workspace;
  int64_t workspace_bytes;
  cuda::NormalizationKind kind;
  bool is_gradient;
  int64_t sizes[4];
  int64_t strides[4];
  double epsilon;

  template <class Gpu>
  void operator()(Gpu& gpu) const {
    const auto scratch = gpu.Global(workspace);
    for (int64_t i = gpu.index(); i < workspace_bytes; i += gpu.stride()) scratch[i] = 0xa5;
    for (int64_t g = gpu.index(); g < groups(); g += gpu.stride()) {
      is_gradient ? Slopes(gpu, g) : Normalize(gpu, g);
    }
    if (!is_gradient) return;
    for (int64_t i = gpu.index(); i < sizes[1]; i += gpu.stride()) Sums(gpu, i);
  }

 private:
  bool is_batch() const { return kind == cuda::NormalizationKind::kBatch; }
  bool is_rms() const { return kind == cuda::NormalizationKind::kRms; }
  int64_t groups() const { return sizes[is_batch() ? 1 : 0]; }
  // Elements of a group, and those that share a scale.
  int64_t count() const { return sizes[is_batch() ? 0 : 1] * sizes[2] * sizes[3]; }
  int64_t shared() const { return sizes[0] * sizes[2] * sizes[3]; }

  int64_t At(int64_t outer, int64_t inner, int64_t plane) const {
    return outer * strides[0] + inner * strides[1] + plane / sizes[3] * strides[2] +
           plane % sizes[3] * strides[3];
  }
  // Element i of a group, and the place of its scale.
  int64_t OfGroup(int64_t group, int64_t i, int64_t& inner) const {
    const int64_t plane = sizes[2] * sizes[3];
    inner = is_batch() ? group : i / plane;
    return At(is_batch() ? i / plane : group, inner, i % plane);
  }

  template <typename V, class Gpu>
  static double Read(Gpu& gpu, const V* from, int64_t at) {
    const V value = gpu.Global(from)[at];
    return static_cast<double>(cuda::Widen(value));
  }
  template <typename V, class Gpu>
  static void Write(Gpu& gpu, V* to, int64_t at, double value) {
    gpu.Global(to)[at] = cuda::Narrow<V>(static_cast<cuda::Compute<V>>(value));
  }

  template <class Gpu>
  void Normalize(Gpu& gpu, int64_t group) const {
    int64_t inner = 0;
    double middle = 0, variance = 0;
    if (!is_rms()) {
      for (int64_t i = 0; i < count(); ++i) middle += Read(gpu, x, OfGroup(group, i, inner));
      middle /= static_cast<double>(count());
      Write(gpu, mean, group, middle);
    }
    for (int64_t i = 0; i < count(); ++i) {
      const double away = Read(gpu, x, OfGroup(group, i, inner)) - middle;
      variance += away * away / static_cast<double>(count());
    }
    const double factor = 1 / std::sqrt(variance + epsilon);
    Write(gpu, inverse, group, factor);
    for (int64_t i = 0; i < count(); ++i) {
      const int64_t at = OfGroup(group, i, inner);
      double y = (Read(gpu, x, at) - middle) * factor * Read(gpu, scale, inner);
      if (!is_rms()) y += Read(gpu, bias, inner);
      Write(gpu, result, at, y);
    }
  }

  template <class Gpu>
  double Normal(Gpu& gpu, int64_t group, int64_t at) const {
    const double middle = is_rms() ? 0 : Read(gpu, mean, group);
    return (Read(gpu, x, at) - middle) * Read(gpu, inverse, group);
  }

  template <class Gpu>
  void Slopes(Gpu& gpu, int64_t group) const {
    int64_t inner = 0;
    double slopes = 0, along = 0;
    for (int64_t i = 0; i < count(); ++i) {
      const int64_t at = OfGroup(group, i, inner);
      const double g = Read(gpu, dy, at) * Read(gpu, scale, inner);
      slopes += g / static_cast<double>(count());
      along += g * Normal(gpu, group, at) / static_cast<double>(count());
    }
    if (is_rms()) slopes = 0;
    for (int64_t i = 0; i < count(); ++i) {
      const int64_t at = OfGroup(group, i, inner);
      const double g = Read(gpu, dy, at) * Read(gpu, scale, inner);
      Write(gpu, result, at,
            Read(gpu, inverse, group) * (g - slopes - Normal(gpu, group, at) * along));
    }
  }

  template <class Gpu>
  void Sums(Gpu& gpu, int64_t inner) const {
    const int64_t plane = sizes[2] * sizes[3];
    double scales = 0, biases = 0;
    for (int64_t i = 0; i < shared(); ++i) {
      const int64_t at = At(i / plane, inner, i % plane);
      const double slope = Read(gpu, dy, at);
      scales += slope * Normal(gpu, is_batch() ? inner : i / plane, at);
      biases += slope;
    }
    Write(gpu, dscale, inner, scales);
    if (!is_rms()) Write(gpu, dbias, inner, biases);
  }
};

template <typename T, typename P>
int LaunchOfTypes(const cuda::NormalizationSpec& spec, const cuda::NormalizationOperands& operands,
                  void* workspace, size_t workspace_bytes, cuda::LaunchQueue queue) {
  RecordedNormalizationBody<T, P> body;
  body.x = static_cast<const T*>(operands.x);
  body.scale = static_cast<const P*>(operands.scale);
  body.bias = static_cast<const P*>(operands.bias);
  body.dy = static_cast<const T*>(operands.dy);
  body.mean = operands.mean;
  body.inverse = operands.inverse;
  body.result = static_cast<T*>(operands.result);
  body.dscale = static_cast<P*>(operands.dscale);
  body.dbias = static_cast<P*>(operands.dbias);
  body.workspace = static_cast<unsigned char*>(workspace);
  body.workspace_bytes = static_cast<int64_t>(workspace_bytes);
  body.kind = spec.kind;
  body.is_gradient = spec.is_gradient;
  std::copy_n(spec.x.dims.begin(), 4, body.sizes);
  std::copy_n(spec.x.strides.begin(), 4, body.strides);
  body.epsilon = spec.epsilon;
  const int64_t items = spec.x.dims[0] + spec.x.dims[1];
  const cuda::LaunchGrid grid = {
      cuda::Blocks(items, kNormalizationDnnThreads, kMaxNormalizationDnnBlocks),
      kNormalizationDnnThreads};
  return cuda::Launch<kNormalizationDnnThreads>(queue, grid, body);
}

}  // namespace

std::string FaultOfNormalization(const cuda::NormalizationSpec& spec,
                                 const cuda::NormalizationOperands& operands) {
  struct Asked {
    const char* name;
    const void* address;
    bool is_asked;
    bool is_written;
  };
  const bool forward = !spec.is_gradient, has_mean = spec.has_mean();
  const Asked all[] = {{"x", operands.x, true, false},
                       {"scale", operands.scale, true, false},
                       {"bias", operands.bias, forward && has_mean, false},
                       {"dy", operands.dy, !forward, false},
                       {"mean", operands.mean, has_mean, forward},
                       {"inverse", operands.inverse, true, forward},
                       {"result", operands.result, true, true},
                       {"dscale", operands.dscale, !forward, true},
                       {"dbias", operands.dbias, !forward && has_mean, true}};
  for (const Asked& one : all) {
    if ((one.address != nullptr) != one.is_asked) {
      return absl::StrCat(one.name, one.is_asked ? " is null" : " is there against the spec");
    }
    if (reinterpret_cast<uintptr_t>(one.address) % cuda::kDnnAlignment != 0) {
      return absl::StrCat(one.name, " is not aligned");
    }
    for (const Asked& other : all) {
      if (&one == &other || !one.is_written || one.address != other.address) continue;
      if (one.address != nullptr) return absl::StrCat(one.name, " lies over ", other.name);
    }
  }
  return "";
}

int LaunchRecordedNormalization(const cuda::NormalizationSpec& spec,
                                const cuda::NormalizationOperands& operands, void* workspace,
                                size_t workspace_bytes, cuda::LaunchQueue queue) {
  const auto launch = [&](auto launch_of) {
    return launch_of(spec, operands, workspace, workspace_bytes, queue);
  };
  const bool wide = spec.parameter_dtype == DType::kFloat32;
  switch (spec.dtype) {
    case DType::kFloat16:
      return launch(wide ? LaunchOfTypes<Float16, float> : LaunchOfTypes<Float16, Float16>);
    case DType::kBfloat16:
      return launch(wide ? LaunchOfTypes<Bfloat16, float> : LaunchOfTypes<Bfloat16, Bfloat16>);
    default:
      return launch(LaunchOfTypes<float, float>);
  }
}

}  // namespace weft::testing
