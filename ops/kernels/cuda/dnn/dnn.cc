#include "ops/kernels/cuda/dnn/dnn.h"

#include <atomic>
#include <limits>
#include <numeric>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace weft::cuda {
namespace {

std::atomic<DnnProvider> dnn_provider{nullptr};

// Of the library: sizes and strides are numbers of 64 bits, but kernels count with 32.
constexpr int64_t kMaxDnnSize = std::numeric_limits<int32_t>::max();

const char* NameOf(ConvolutionResult result) {
  switch (result) {
    case ConvolutionResult::kSmallImage:
      return "Conv";
    case ConvolutionResult::kLargeImage:
      return "gradient of the input of Conv";
    case ConvolutionResult::kWeights:
      return "gradient of the weights of Conv";
  }
  return "Conv";
}

std::string DimsText(const DnnTensor& tensor) {
  return absl::StrCat("[", absl::StrJoin(tensor.dims, ","), "]");
}

// Elements of 16 bits that are read at once.
constexpr int64_t kDnnPacket = 8;

// What is wrong with a tensor by itself; "" where nothing is.
std::string Fault(const DnnTensor& tensor) {
  if (tensor.dims.size() != tensor.strides.size()) return "another number of strides than of sizes";
  if (tensor.dims.size() < 4 || tensor.dims.size() > 5) return "a rank other than 4 or 5";
  for (size_t i = 0; i < tensor.dims.size(); ++i) {
    if (tensor.dims[i] < 1) return "no elements";
    if (tensor.strides[i] < 1) return "a stride below 1";
  }
  return "";
}

const char* NameOf(NormalizationKind kind) {
  switch (kind) {
    case NormalizationKind::kBatch:
      return "batch normalization";
    case NormalizationKind::kLayer:
      return "layer normalization";
    case NormalizationKind::kRms:
      return "RMS normalization";
  }
  return "normalization";
}

bool IsDnnFloat(DType dtype) {
  return dtype == DType::kFloat32 || dtype == DType::kFloat16 || dtype == DType::kBfloat16;
}

bool FitsAlong(const ConvolutionSpec& spec, size_t axis) {
  const int64_t large = spec.large.dims[axis + 2];
  const int64_t reach = (spec.weights.dims[axis + 2] - 1) * spec.dilations[axis];
  const int64_t room = large + 2 * spec.pads[axis] - reach - 1;
  return room >= 0 && spec.small.dims[axis + 2] == room / spec.strides[axis] + 1;
}

}  // namespace

DnnTensor DnnTensor::Dense(std::vector<int64_t> dims) {
  DnnTensor tensor;
  tensor.strides.resize(dims.size());
  int64_t stride = 1;
  for (size_t i = dims.size(); i > 0; --i) {
    tensor.strides[i - 1] = stride;
    stride *= dims[i - 1];
  }
  tensor.dims = std::move(dims);
  return tensor;
}

DnnTensor DnnTensor::Rows(int64_t rows, int64_t columns) {
  return {{rows, columns, 1, 1}, {columns, 1, columns, columns}};
}

int64_t DnnTensor::num_elements() const {
  return std::accumulate(dims.begin(), dims.end(), int64_t{1}, std::multiplies<>());
}

int64_t DnnTensor::span() const {
  int64_t last = 0;
  for (size_t i = 0; i < dims.size(); ++i) last += (dims[i] - 1) * strides[i];
  return last + 1;
}

const DnnTensor& ConvolutionSpec::computed() const {
  switch (result) {
    case ConvolutionResult::kLargeImage:
      return large;
    case ConvolutionResult::kWeights:
      return weights;
    default:
      return small;
  }
}

std::string ConvolutionSpec::ToString() const {
  return absl::StrCat(std::string(DTypeName(dtype)), " ", NameOf(result), " ", DimsText(large),
                      " * ", DimsText(weights), " = ", DimsText(small),
                      groups == 1 ? "" : absl::StrCat(" in ", groups, " groups"),
                      has_bias ? " with bias" : "");
}

absl::Status CheckConvolution(const ConvolutionSpec& spec) {
  const auto bad = [&](absl::string_view what) {
    return absl::InternalError(
        absl::StrCat("a convolution ", spec.ToString(), " cannot have ", what));
  };
  if (!IsDnnFloat(spec.dtype)) return bad("this element type");
  if (spec.tf32 && spec.dtype != DType::kFloat32) return bad("TF32 in 16 bits");
  for (const DnnTensor* const tensor : {&spec.large, &spec.weights, &spec.small}) {
    const std::string fault = Fault(*tensor);
    if (!fault.empty()) return bad(fault);
  }
  const size_t rank = spec.large.dims.size();
  if (spec.weights.dims.size() != rank || spec.small.dims.size() != rank) {
    return bad("operands of different ranks");
  }
  if (spec.pads.size() != rank - 2 || spec.strides.size() != rank - 2 ||
      spec.dilations.size() != rank - 2) {
    return bad("pads, strides or dilations for other than its image axes");
  }
  if (spec.large.dims[0] != spec.small.dims[0]) return bad("images of different samples");
  if (spec.groups < 1 || spec.large.dims[1] != spec.groups * spec.weights.dims[1] ||
      spec.small.dims[1] != spec.weights.dims[0] || spec.small.dims[1] % spec.groups != 0) {
    return bad("channels that do not fit its weights");
  }
  for (size_t i = 0; i + 2 < rank; ++i) {
    if (spec.pads[i] < 0 || spec.strides[i] < 1 || spec.dilations[i] < 1) {
      return bad("a negative pad, or a stride or dilation below 1");
    }
    if (!FitsAlong(spec, i)) return bad("an image size that its windows do not give");
  }
  if (spec.has_bias && (spec.adds || spec.result == ConvolutionResult::kWeights)) {
    return bad("a bias beside an addend, or for weights");
  }
  for (const DnnTensor* const tensor : {&spec.large, &spec.weights, &spec.small}) {
    if (tensor->span() <= kMaxDnnSize) continue;
    return absl::UnimplementedError(absl::StrCat(
        "cuDNN is asked for operands of less than 2^31 elements, this is ", spec.ToString()));
  }
  return absl::OkStatus();
}

std::string AttentionSpec::ToString() const {
  return absl::StrCat(std::string(DTypeName(dtype)), " attention of ", DimsText(query), " to ",
                      DimsText(key), causal ? ", causal" : "");
}

absl::Status CheckAttention(const AttentionSpec& spec) {
  const auto bad = [&](absl::string_view what) {
    return absl::InternalError(absl::StrCat(spec.ToString(), " cannot have ", what));
  };
  const auto unknown = [&](absl::string_view what) {
    return absl::UnimplementedError(
        absl::StrCat("cuDNN is asked for attention ", what, ", this is ", spec.ToString()));
  };
  if (spec.dtype != DType::kFloat16 && spec.dtype != DType::kBfloat16) {
    return unknown("of float16 and bfloat16");
  }
  constexpr size_t kRank = 4;
  for (const DnnTensor* const tensor : {&spec.query, &spec.key, &spec.value, &spec.result}) {
    const std::string fault = Fault(*tensor);
    if (!fault.empty()) return bad(fault);
    if (tensor->dims.size() != kRank) return bad("operands of another rank than 4");
    if (tensor->strides.back() != 1) return bad("elements of a row that lie apart");
    if (tensor->span() > kMaxDnnSize) return unknown("to less than 2^31 elements");
    for (size_t i = 0; i < kRank; ++i) {
      const int64_t unit = i + 1 == kRank ? tensor->dims[i] : tensor->strides[i];
      if (unit % kDnnPacket != 0) return unknown("with rows of a multiple of 8 elements");
    }
  }
  const auto dim = [](const DnnTensor& tensor, int i) { return tensor.dims[i]; };
  if (dim(spec.key, 0) != dim(spec.query, 0) || dim(spec.value, 0) != dim(spec.query, 0) ||
      dim(spec.result, 0) != dim(spec.query, 0)) {
    return bad("operands of different samples");
  }
  if (dim(spec.query, 1) % dim(spec.key, 1) != 0 || dim(spec.value, 1) != dim(spec.key, 1) ||
      dim(spec.result, 1) != dim(spec.query, 1)) {
    return bad("heads that do not share keys evenly");
  }
  if (dim(spec.value, 2) != dim(spec.key, 2) || dim(spec.result, 2) != dim(spec.query, 2) ||
      dim(spec.key, 3) != dim(spec.query, 3) || dim(spec.result, 3) != dim(spec.value, 3)) {
    return bad("rows or sizes that do not fit");
  }
  return absl::OkStatus();
}

DnnTensor NormalizationSpec::parameters() const { return DnnTensor::Rows(1, x.dims[1]); }

DnnTensor NormalizationSpec::statistics() const {
  return kind == NormalizationKind::kBatch ? parameters() : DnnTensor::Rows(x.dims[0], 1);
}

std::string NormalizationSpec::ToString() const {
  return absl::StrCat(std::string(DTypeName(dtype)), is_gradient ? " gradient of " : " ",
                      NameOf(kind), " of ", DimsText(x));
}

absl::Status CheckNormalization(const NormalizationSpec& spec) {
  const auto bad = [&](absl::string_view what) {
    return absl::InternalError(absl::StrCat(spec.ToString(), " cannot have ", what));
  };
  const bool is_batch = spec.kind == NormalizationKind::kBatch;
  if (!IsDnnFloat(spec.dtype)) return bad("this element type");
  const bool own_type = !is_batch && spec.parameter_dtype == spec.dtype;
  if (spec.parameter_dtype != DType::kFloat32 && !own_type) return bad("scales of this type");
  if (const std::string fault = Fault(spec.x); !fault.empty()) return bad(fault);
  if (spec.x.dims.size() != 4) return bad("operands of another rank than 4");
  if (!is_batch && spec.x.dims[2] * spec.x.dims[3] != 1) return bad("rows of images");
  if (!is_batch && spec.x.strides[1] != 1) return bad("elements of a row that lie apart");
  if (!spec.is_gradient && !(spec.epsilon >= 0)) return bad("an epsilon that is not 0 or more");
  if (spec.x.span() <= kMaxDnnSize) return absl::OkStatus();
  return absl::UnimplementedError(absl::StrCat(
      "cuDNN is asked for normalizations of less than 2^31 elements, this is ", spec.ToString()));
}

absl::StatusOr<Dnn*> DnnOf(Device& device) {
  const DnnProvider provider = dnn_provider.load();
  if (provider != nullptr) return provider(device);
  return absl::FailedPreconditionError(absl::StrCat(
      "nodes of ", device.info().name,
      " are to go through cuDNN, and this program is built without it (--config=cuda, where "
      "cudnn.h is installed); build it so, or leave out --cudnn on"));
}

bool SetDnnProvider(DnnProvider provider) {
  dnn_provider.store(provider);
  return true;
}

}  // namespace weft::cuda
