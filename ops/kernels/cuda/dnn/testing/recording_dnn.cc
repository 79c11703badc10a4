#include "ops/kernels/cuda/dnn/testing/recording_dnn.h"

#include <algorithm>
#include <cstring>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "ops/kernels/cuda/dnn/testing/recorded_attention.h"
#include "ops/kernels/cuda/dnn/testing/recorded_normalization.h"
#include "ops/kernels/cuda/language/launch.h"
#include "ops/kernels/cuda/language/scalar.h"
#include "ops/testing/emulator/emulated_launch.h"
#include "platform/status_macros.h"

namespace weft::testing {
namespace {

constexpr int kDnnThreads = 64;
constexpr int64_t kMaxDnnBlocks = 8;
constexpr int kMaxImageAxes = 3;

// float32 with the 10 bits of mantissa that TF32 has, rounded to nearest even.
inline float RoundToTf32(float value) {
  uint32_t bits;
  std::memcpy(&bits, &value, sizeof(bits));
  bits += 0xfff + ((bits >> 13) & 1);
  bits &= ~uint32_t{0x1fff};
  std::memcpy(&value, &bits, sizeof(bits));
  return value;
}

// Sizes and strides, with image axes of size 1 in front of those that there are.
struct ImageLayout {
  int64_t outer[2] = {1, 1};
  int64_t outer_strides[2] = {0, 0};
  int64_t sizes[kMaxImageAxes] = {1, 1, 1};
  int64_t strides[kMaxImageAxes] = {0, 0, 0};

  static ImageLayout Of(const cuda::DnnTensor& tensor) {
    ImageLayout layout;
    std::copy_n(tensor.dims.begin(), 2, layout.outer);
    std::copy_n(tensor.strides.begin(), 2, layout.outer_strides);
    const size_t axes = tensor.dims.size() - 2;
    for (size_t i = 0; i < axes; ++i) {
      layout.sizes[kMaxImageAxes - axes + i] = tensor.dims[i + 2];
      layout.strides[kMaxImageAxes - axes + i] = tensor.strides[i + 2];
    }
    return layout;
  }
  int64_t count() const { return outer[0] * outer[1] * plane(); }
  int64_t plane() const { return sizes[0] * sizes[1] * sizes[2]; }
  int64_t At(int64_t first, int64_t second, const int64_t (&place)[kMaxImageAxes]) const {
    int64_t at = first * outer_strides[0] + second * outer_strides[1];
    for (int i = 0; i < kMaxImageAxes; ++i) at += place[i] * strides[i];
    return at;
  }
  // The place of element `index` of a plane.
  void Place(int64_t index, int64_t (&place)[kMaxImageAxes]) const {
    for (int i = kMaxImageAxes - 1; i >= 0; --i) {
      place[i] = index % sizes[i];
      index /= sizes[i];
    }
  }
};

// Each element of the result is the sum over all (position, tap) pairs that belong to it.
template <typename T>
struct ConvolutionBody {
  T* large_image;
  T* weights;
  T* small_image;
  const T* bias;
  unsigned char* workspace;
  int64_t workspace_bytes;
  cuda::ConvolutionResult result;
  ImageLayout large, filter, small;
  int64_t groups;
  int64_t pads[kMaxImageAxes] = {0, 0, 0};
  int64_t steps[kMaxImageAxes] = {1, 1, 1};
  int64_t dilations[kMaxImageAxes] = {1, 1, 1};
  bool adds;
  bool tf32;

  template <class Gpu>
  void operator()(Gpu& gpu) const {
    const auto scratch = gpu.Global(workspace);
    for (int64_t i = gpu.index(); i < workspace_bytes; i += gpu.stride()) scratch[i] = 0xa5;
    const ImageLayout& of = Result();
    for (int64_t i = gpu.index(); i < of.count(); i += gpu.stride()) Element(gpu, of, i);
  }

 private:
  const ImageLayout& Result() const {
    if (result == cuda::ConvolutionResult::kLargeImage) return large;
    return result == cuda::ConvolutionResult::kWeights ? filter : small;
  }
  double Operand(T value) const {
    const auto wide = cuda::Widen(value);
    return tf32 ? RoundToTf32(static_cast<float>(wide)) : static_cast<double>(wide);
  }

  template <class Gpu>
  void Element(Gpu& gpu, const ImageLayout& of, int64_t index) const {
    int64_t place[kMaxImageAxes];
    of.Place(index % of.plane(), place);
    const int64_t second = index / of.plane() % of.outer[1];
    const int64_t first = index / of.plane() / of.outer[1];
    double sum = 0;
    if (result == cuda::ConvolutionResult::kSmallImage) {
      sum = OfSmall(gpu, first, second, place);
    } else if (result == cuda::ConvolutionResult::kLargeImage) {
      sum = OfLarge(gpu, first, second, place);
    } else {
      sum = OfWeights(gpu, first, second, place);
    }
    const auto to = gpu.Global(result == cuda::ConvolutionResult::kSmallImage   ? small_image
                               : result == cuda::ConvolutionResult::kLargeImage ? large_image
                                                                                : weights);
    const int64_t at = of.At(first, second, place);
    if (adds) {
      const T before = to[at];
      sum += static_cast<double>(cuda::Widen(before));
    }
    if (bias != nullptr) {
      const T addend = gpu.Global(bias)[second];
      sum += static_cast<double>(cuda::Widen(addend));
    }
    to[at] = cuda::Narrow<T>(static_cast<cuda::Compute<T>>(sum));
  }

  // The element of the large image that tap `tap` of position `position` is; false: padding.
  bool Hit(const int64_t (&position)[kMaxImageAxes], const int64_t (&tap)[kMaxImageAxes],
           int64_t (&element)[kMaxImageAxes]) const {
    for (int i = 0; i < kMaxImageAxes; ++i) {
      element[i] = position[i] * steps[i] - pads[i] + tap[i] * dilations[i];
      if (element[i] < 0 || element[i] >= large.sizes[i]) return false;
    }
    return true;
  }

  template <class Gpu>
  double OfSmall(Gpu& gpu, int64_t sample, int64_t channel,
                 const int64_t (&position)[kMaxImageAxes]) const {
    const int64_t group = channel / (small.outer[1] / groups);
    double sum = 0;
    for (int64_t c = 0; c < filter.outer[1]; ++c) {
      for (int64_t t = 0; t < filter.plane(); ++t) {
        int64_t tap[kMaxImageAxes], element[kMaxImageAxes];
        filter.Place(t, tap);
        if (!Hit(position, tap, element)) continue;
        const T x = gpu.Global(large_image)[large.At(sample, group * filter.outer[1] + c, element)];
        const T w = gpu.Global(weights)[filter.At(channel, c, tap)];
        sum += Operand(x) * Operand(w);
      }
    }
    return sum;
  }

  template <class Gpu>
  double OfLarge(Gpu& gpu, int64_t sample, int64_t channel,
                 const int64_t (&element)[kMaxImageAxes]) const {
    const int64_t group = channel / filter.outer[1];
    const int64_t of_group = small.outer[1] / groups;
    double sum = 0;
    for (int64_t t = 0; t < filter.plane(); ++t) {
      int64_t tap[kMaxImageAxes], position[kMaxImageAxes];
      filter.Place(t, tap);
      bool hits = true;
      for (int i = 0; i < kMaxImageAxes; ++i) {
        const int64_t from = element[i] + pads[i] - tap[i] * dilations[i];
        hits = hits && from >= 0 && from % steps[i] == 0 && from / steps[i] < small.sizes[i];
        position[i] = from / steps[i];
      }
      if (!hits) continue;
      for (int64_t k = group * of_group; k < (group + 1) * of_group; ++k) {
        const T y = gpu.Global(small_image)[small.At(sample, k, position)];
        const T w = gpu.Global(weights)[filter.At(k, channel % filter.outer[1], tap)];
        sum += Operand(y) * Operand(w);
      }
    }
    return sum;
  }

  template <class Gpu>
  double OfWeights(Gpu& gpu, int64_t channel, int64_t input,
                   const int64_t (&tap)[kMaxImageAxes]) const {
    const int64_t group = channel / (small.outer[1] / groups);
    double sum = 0;
    for (int64_t sample = 0; sample < small.outer[0]; ++sample) {
      for (int64_t p = 0; p < small.plane(); ++p) {
        int64_t position[kMaxImageAxes], element[kMaxImageAxes];
        small.Place(p, position);
        if (!Hit(position, tap, element)) continue;
        const T x =
            gpu.Global(large_image)[large.At(sample, group * filter.outer[1] + input, element)];
        const T y = gpu.Global(small_image)[small.At(sample, channel, position)];
        sum += Operand(x) * Operand(y);
      }
    }
    return sum;
  }
};

template <typename T>
int LaunchConvolution(const cuda::ConvolutionSpec& spec, const cuda::ConvolutionOperands& operands,
                      void* workspace, size_t workspace_bytes, cuda::LaunchQueue queue) {
  ConvolutionBody<T> body;
  body.large_image = static_cast<T*>(operands.large);
  body.weights = static_cast<T*>(operands.weights);
  body.small_image = static_cast<T*>(operands.small);
  body.bias = static_cast<const T*>(operands.bias);
  body.workspace = static_cast<unsigned char*>(workspace);
  body.workspace_bytes = static_cast<int64_t>(workspace_bytes);
  body.result = spec.result;
  body.large = ImageLayout::Of(spec.large);
  body.filter = ImageLayout::Of(spec.weights);
  body.small = ImageLayout::Of(spec.small);
  body.groups = spec.groups;
  const size_t missing = kMaxImageAxes - spec.pads.size();
  for (size_t i = 0; i < spec.pads.size(); ++i) {
    body.pads[missing + i] = spec.pads[i];
    body.steps[missing + i] = spec.strides[i];
    body.dilations[missing + i] = spec.dilations[i];
  }
  body.adds = spec.adds;
  body.tf32 = spec.tf32;
  const int64_t results = spec.computed().num_elements();
  const cuda::LaunchGrid grid = {cuda::Blocks(results, kDnnThreads, kMaxDnnBlocks), kDnnThreads};
  return cuda::Launch<kDnnThreads>(queue, grid, body);
}

bool IsDnnAligned(const void* address, size_t bytes) {
  return reinterpret_cast<uintptr_t>(address) % bytes == 0;
}

absl::StatusOr<cuda::Dnn*> RecordingDnnOf(Device&) { return &RecordingDnn::Get(); }

[[maybe_unused]] const bool is_the_dnn = cuda::SetDnnProvider(RecordingDnnOf);

}  // namespace

class RecordedConvolution final : public cuda::PreparedConvolution {
 public:
  RecordedConvolution(RecordingDnn& owner, const cuda::ConvolutionSpec& spec)
      : owner_(owner),
        spec_(spec),
        // None for some, and not whole multiples of anything for others.
        bytes_(static_cast<size_t>(spec.small.num_elements() % 3 * 97)) {}

  size_t workspace_bytes() const override { return bytes_; }

  absl::Status Run(const cuda::ConvolutionOperands& operands, void* workspace,
                   cuda::LaunchQueue queue) override {
    WEFT_RETURN_IF_ERROR(Check(operands, workspace, queue));
    owner_.Record(RecordingDnn::Call{spec_, operands});
    int code = 0;
    if (spec_.dtype == DType::kFloat16) {
      code = LaunchConvolution<Float16>(spec_, operands, workspace, bytes_, queue);
    } else if (spec_.dtype == DType::kBfloat16) {
      code = LaunchConvolution<Bfloat16>(spec_, operands, workspace, bytes_, queue);
    } else {
      code = LaunchConvolution<float>(spec_, operands, workspace, bytes_, queue);
    }
    if (code == 0) return absl::OkStatus();
    return Broken(absl::StrCat("the emulator refuses with error ", code));
  }

 private:
  absl::Status Broken(absl::string_view what) const {
    return absl::InternalError(absl::StrCat(spec_.ToString(), ": ", what));
  }

  absl::Status Check(const cuda::ConvolutionOperands& operands, void* workspace,
                     cuda::LaunchQueue queue) const {
    if (queue.stream == nullptr) return Broken("no stream");
    const void* const all[] = {operands.large, operands.weights, operands.small};
    for (const void* const operand : all) {
      if (operand == nullptr) return Broken("an operand is null");
      if (!IsDnnAligned(operand, cuda::kDnnAlignment)) return Broken("an operand is not aligned");
    }
    if (all[0] == all[1] || all[1] == all[2] || all[0] == all[2]) {
      return Broken("the result lies over an operand");
    }
    if ((operands.bias != nullptr) != spec_.has_bias) return Broken("a bias against the spec");
    if (!IsDnnAligned(operands.bias, cuda::kDnnAlignment)) return Broken("the bias is not aligned");
    if (bytes_ > 0 && workspace == nullptr) return Broken("no workspace");
    if (!IsDnnAligned(workspace, cuda::kDnnWorkspaceAlignment)) {
      return Broken("the workspace is not aligned");
    }
    return absl::OkStatus();
  }

  RecordingDnn& owner_;
  const cuda::ConvolutionSpec spec_;
  const size_t bytes_;
};

class RecordedAttention final : public cuda::PreparedAttention {
 public:
  RecordedAttention(RecordingDnn& owner, const cuda::AttentionSpec& spec)
      : owner_(owner),
        spec_(spec),
        bytes_(static_cast<size_t>(spec.query.num_elements() % 3 * 97)) {}

  size_t workspace_bytes() const override { return bytes_; }

  absl::Status Run(const cuda::AttentionOperands& operands, void* workspace,
                   cuda::LaunchQueue queue) override {
    WEFT_RETURN_IF_ERROR(Check(operands, workspace, queue));
    owner_.Record(RecordingDnn::AttentionCall{spec_, operands});
    const int code = LaunchRecordedAttention(spec_, operands, workspace, bytes_, queue);
    if (code == 0) return absl::OkStatus();
    return Broken(absl::StrCat("the emulator refuses with error ", code));
  }

 private:
  absl::Status Broken(absl::string_view what) const {
    return absl::InternalError(absl::StrCat(spec_.ToString(), ": ", what));
  }

  absl::Status Check(const cuda::AttentionOperands& operands, void* workspace,
                     cuda::LaunchQueue queue) const {
    if (queue.stream == nullptr) return Broken("no stream");
    for (const void* const operand : {operands.query, operands.key, operands.value}) {
      if (operand == nullptr) return Broken("an operand is null");
      if (!IsDnnAligned(operand, cuda::kDnnAlignment)) return Broken("an operand is not aligned");
      if (operand == operands.result) return Broken("the result lies over an operand");
    }
    if (operands.result == nullptr) return Broken("no result");
    if (!IsDnnAligned(operands.result, cuda::kDnnAlignment)) {
      return Broken("the result is not aligned");
    }
    if (bytes_ > 0 && workspace == nullptr) return Broken("no workspace");
    if (!IsDnnAligned(workspace, cuda::kDnnWorkspaceAlignment)) {
      return Broken("the workspace is not aligned");
    }
    return absl::OkStatus();
  }

  RecordingDnn& owner_;
  const cuda::AttentionSpec spec_;
  const size_t bytes_;
};

class RecordedAttentionGradient final : public cuda::PreparedAttentionGradient {
 public:
  RecordedAttentionGradient(RecordingDnn& owner, const cuda::AttentionSpec& spec)
      : owner_(owner),
        spec_(spec),
        bytes_(static_cast<size_t>(spec.query.num_elements() % 3 * 97)) {}

  size_t workspace_bytes() const override { return bytes_; }

  absl::Status Run(const cuda::AttentionGradientOperands& operands, void* workspace,
                   cuda::LaunchQueue queue) override {
    if (queue.stream == nullptr) return Broken("no stream");
    const void* const read[] = {operands.query,  operands.key,      operands.value,
                                operands.result, operands.log_sums, operands.dresult};
    const void* const written[] = {operands.dquery, operands.dkey, operands.dvalue};
    for (const void* const operand : read) {
      if (operand == nullptr) return Broken("an operand is null");
      if (!IsDnnAligned(operand, cuda::kDnnAlignment)) return Broken("an operand is not aligned");
    }
    for (const void* const result : written) {
      if (result == nullptr) return Broken("a result is null");
      if (!IsDnnAligned(result, cuda::kDnnAlignment)) return Broken("a result is not aligned");
      for (const void* const operand : read) {
        if (operand == result) return Broken("a result lies over an operand");
      }
    }
    if (written[0] == written[1] || written[1] == written[2] || written[0] == written[2]) {
      return Broken("results lie over each other");
    }
    if (bytes_ > 0 && workspace == nullptr) return Broken("no workspace");
    if (!IsDnnAligned(workspace, cuda::kDnnWorkspaceAlignment)) {
      return Broken("the workspace is not aligned");
    }
    owner_.Record(RecordingDnn::AttentionGradientCall{spec_, operands});
    const int code = LaunchRecordedAttentionGradient(spec_, operands, workspace, bytes_, queue);
    if (code == 0) return absl::OkStatus();
    return Broken(absl::StrCat("the emulator refuses with error ", code));
  }

 private:
  absl::Status Broken(absl::string_view what) const {
    return absl::InternalError(absl::StrCat("the gradient of ", spec_.ToString(), ": ", what));
  }

  RecordingDnn& owner_;
  const cuda::AttentionSpec spec_;
  const size_t bytes_;
};

class RecordedNormalization final : public cuda::PreparedNormalization {
 public:
  RecordedNormalization(RecordingDnn& owner, const cuda::NormalizationSpec& spec)
      : owner_(owner), spec_(spec), bytes_(static_cast<size_t>(spec.x.num_elements() % 3 * 97)) {}

  size_t workspace_bytes() const override { return bytes_; }

  absl::Status Run(const cuda::NormalizationOperands& operands, void* workspace,
                   cuda::LaunchQueue queue) override {
    if (queue.stream == nullptr) return Broken("no stream");
    if (const std::string fault = FaultOfNormalization(spec_, operands); !fault.empty()) {
      return Broken(fault);
    }
    if (bytes_ > 0 && workspace == nullptr) return Broken("no workspace");
    if (!IsDnnAligned(workspace, cuda::kDnnWorkspaceAlignment)) {
      return Broken("the workspace is not aligned");
    }
    owner_.Record(RecordingDnn::NormalizationCall{spec_, operands});
    const int code = LaunchRecordedNormalization(spec_, operands, workspace, bytes_, queue);
    if (code == 0) return absl::OkStatus();
    return Broken(absl::StrCat("the emulator refuses with error ", code));
  }

 private:
  absl::Status Broken(absl::string_view what) const {
    return absl::InternalError(absl::StrCat(spec_.ToString(), ": ", what));
  }

  RecordingDnn& owner_;
  const cuda::NormalizationSpec spec_;
  const size_t bytes_;
};

RecordingDnn& RecordingDnn::Get() {
  static auto* const library = new RecordingDnn();
  return *library;
}

absl::StatusOr<std::unique_ptr<cuda::PreparedConvolution>> RecordingDnn::Prepare(
    const cuda::ConvolutionSpec& spec) {
  WEFT_RETURN_IF_ERROR(cuda::CheckConvolution(spec));
  MutexLock lock(mutex_);
  if (refusals_.all || (refusals_.bias && spec.has_bias) || (refusals_.adding && spec.adds)) {
    return absl::UnimplementedError(absl::StrCat("no plan for ", spec.ToString()));
  }
  return std::make_unique<RecordedConvolution>(*this, spec);
}

absl::StatusOr<std::unique_ptr<cuda::PreparedAttention>> RecordingDnn::PrepareAttention(
    const cuda::AttentionSpec& spec) {
  WEFT_RETURN_IF_ERROR(cuda::CheckAttention(spec));
  MutexLock lock(mutex_);
  if (refusals_.all) return absl::UnimplementedError(absl::StrCat("no plan for ", spec.ToString()));
  return std::make_unique<RecordedAttention>(*this, spec);
}

absl::StatusOr<std::unique_ptr<cuda::PreparedAttentionGradient>>
RecordingDnn::PrepareAttentionGradient(const cuda::AttentionSpec& spec) {
  WEFT_RETURN_IF_ERROR(cuda::CheckAttention(spec));
  MutexLock lock(mutex_);
  if (refusals_.all) {
    return absl::UnimplementedError(absl::StrCat("no plan for the gradient of ", spec.ToString()));
  }
  return std::make_unique<RecordedAttentionGradient>(*this, spec);
}

absl::StatusOr<std::unique_ptr<cuda::PreparedNormalization>> RecordingDnn::PrepareNormalization(
    const cuda::NormalizationSpec& spec) {
  WEFT_RETURN_IF_ERROR(cuda::CheckNormalization(spec));
  MutexLock lock(mutex_);
  if (refusals_.all) return absl::UnimplementedError(absl::StrCat("no plan for ", spec.ToString()));
  return std::make_unique<RecordedNormalization>(*this, spec);
}

std::vector<RecordingDnn::Call> RecordingDnn::TakeCalls() {
  MutexLock lock(mutex_);
  return std::exchange(calls_, {});
}

std::vector<RecordingDnn::AttentionCall> RecordingDnn::TakeAttentions() {
  MutexLock lock(mutex_);
  return std::exchange(attentions_, {});
}

std::vector<RecordingDnn::NormalizationCall> RecordingDnn::TakeNormalizations() {
  MutexLock lock(mutex_);
  return std::exchange(normalizations_, {});
}

std::vector<RecordingDnn::AttentionGradientCall> RecordingDnn::TakeAttentionGradients() {
  MutexLock lock(mutex_);
  return std::exchange(attention_gradients_, {});
}

void RecordingDnn::Refuse(const Refusals& refusals) {
  MutexLock lock(mutex_);
  refusals_ = refusals;
}

void RecordingDnn::Record(const Call& call) {
  MutexLock lock(mutex_);
  calls_.push_back(call);
}

void RecordingDnn::Record(const AttentionCall& call) {
  MutexLock lock(mutex_);
  attentions_.push_back(call);
}

void RecordingDnn::Record(const AttentionGradientCall& call) {
  MutexLock lock(mutex_);
  attention_gradients_.push_back(call);
}

void RecordingDnn::Record(const NormalizationCall& call) {
  MutexLock lock(mutex_);
  normalizations_.push_back(call);
}

}  // namespace weft::testing
