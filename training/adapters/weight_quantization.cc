#include "training/adapters/weight_quantization.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "platform/status_macros.h"
#include "tensor/packed.h"
#include "tensor/special_values.h"

namespace weft {
namespace {

constexpr int64_t kMaxBlock = int64_t{1} << 20;
constexpr int kInt4Bits = 4;

// Which scale each element of a tensor has: the tensor is seen as [outer, size, inner], of which
// `size` is the axis'.
class GroupsOfElements {
 public:
  GroupsOfElements(const Shape& shape, int axis, int64_t block)
      : size_(shape.dim(axis)), inner_(shape.ProductOf(axis + 1, shape.rank())), block_(block) {
    if (block_ > 0) blocks_ = (size_ + block_ - 1) / block_;
    scales_ = shape;
    if (block_ > 0) {
      scales_.set_dim(axis, blocks_);
    } else {
      scales_ = Shape{size_};
    }
  }

  const Shape& shape_of_scales() const { return scales_; }

  // Calls fn(first, count, scale, step): a run of neighbours has one scale (step 0) or the next one
  // each (step 1).
  template <typename Fn>
  void ForEachRun(int64_t elements, Fn fn) const {
    if (size_ == 0 || inner_ == 0) return;
    for (int64_t row = 0; row < elements / inner_; ++row) {
      const int64_t place = row % size_;
      const int64_t scale = block_ > 0 ? (row / size_ * blocks_ + place / block_) * inner_ : place;
      fn(row * inner_, inner_, scale, block_ > 0 ? int64_t{1} : int64_t{0});
    }
  }

 private:
  int64_t size_;
  int64_t inner_;
  int64_t block_;
  int64_t blocks_ = 0;
  Shape scales_;
};

int CodeOf(float weight, float scale, int limit) {
  const float whole = std::nearbyint(weight / scale);
  return static_cast<int>(std::clamp(whole, -static_cast<float>(limit), static_cast<float>(limit)));
}

int CodeAt(const Tensor& codes, int64_t i) {
  if (codes.dtype() == DType::kInt8) return static_cast<const int8_t*>(codes.raw_data())[i];
  const auto code = static_cast<int>(PackedElement(codes.raw_data(), kInt4Bits, i));
  return code >= 8 ? code - 16 : code;
}

void SetCode(Tensor& codes, int64_t i, int code) {
  if (codes.dtype() == DType::kInt8) {
    static_cast<int8_t*>(codes.raw_data())[i] = static_cast<int8_t>(code);
  } else {
    SetPackedElement(codes.raw_data(), kInt4Bits, i, static_cast<uint32_t>(code) & 0xFU);
  }
}

absl::Status CheckWeight(const Tensor& weight) {
  const DType dtype = weight.dtype();
  if (dtype != DType::kFloat32 && dtype != DType::kFloat16 && dtype != DType::kBfloat16) {
    return absl::InvalidArgumentError(
        absl::StrCat("it is ", std::string(DTypeName(dtype)),
                     ", and DequantizeLinear makes float32, float16 and bfloat16"));
  }
  const int64_t bad = FindNonFinite(weight);
  if (bad < 0) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("its element ", bad, " is ", ElementText(weight, bad)));
}

// How far the next smaller number of a type is away from x, in parts of x, at most.
float StepOf(DType dtype) {
  return dtype == DType::kFloat32 ? 0x1p-23F : dtype == DType::kFloat16 ? 0x1p-10F : 0x1p-7F;
}

// Scales that were rounded up so far that the largest code stands for an infinity become smaller.
absl::Status LowerOverflowing(int limit, DType dtype, Tensor& scales) {
  WEFT_ASSIGN_OR_RETURN(Tensor ends, CastTensor(scales, DType::kFloat32));
  for (float& end : ends.mutable_data<float>()) end *= static_cast<float>(limit);
  WEFT_ASSIGN_OR_RETURN(const Tensor rounded, CastTensor(ends, dtype));
  if (FindNonFinite(rounded) < 0) return absl::OkStatus();
  WEFT_ASSIGN_OR_RETURN(ends, CastTensor(rounded, DType::kFloat32));
  const float* const end = ends.data<float>().data();
  const auto scale = scales.mutable_data<float>();
  for (size_t i = 0; i < scale.size(); ++i) {
    if (!std::isfinite(end[i])) scale[i] *= 1 - StepOf(dtype);
  }
  WEFT_ASSIGN_OR_RETURN(const Tensor lower, CastTensor(scales, dtype));
  WEFT_ASSIGN_OR_RETURN(scales, CastTensor(lower, DType::kFloat32));
  return absl::OkStatus();
}

// max |w| of each group / limit, as numbers of `dtype`.
absl::StatusOr<Tensor> ScalesOf(const Tensor& weight, const GroupsOfElements& groups, int limit,
                                DType dtype) {
  WEFT_ASSIGN_OR_RETURN(Tensor scales, Tensor::Zeros(DType::kFloat32, groups.shape_of_scales()));
  float* const scale = scales.mutable_data<float>().data();
  const float* const w = weight.data<float>().data();
  groups.ForEachRun(
      weight.num_elements(), [&](int64_t first, int64_t count, int64_t at, int64_t step) {
        for (int64_t i = 0; i < count; ++i) {
          scale[at + i * step] = std::max(scale[at + i * step], std::abs(w[first + i]));
        }
      });
  for (float& value : scales.mutable_data<float>()) value /= static_cast<float>(limit);
  WEFT_ASSIGN_OR_RETURN(const Tensor rounded, CastTensor(scales, dtype));
  WEFT_ASSIGN_OR_RETURN(scales, CastTensor(rounded, DType::kFloat32));
  for (float& value : scales.mutable_data<float>()) {
    if (value == 0) value = 1;
  }
  WEFT_RETURN_IF_ERROR(LowerOverflowing(limit, dtype, scales));
  return scales;
}

}  // namespace

absl::StatusOr<BaseQuantization> ParseBaseQuantization(const std::vector<std::string>& items) {
  BaseQuantization spec;
  bool has_type = false, has_block = false;
  for (const std::string& item : items) {
    absl::string_view rest = item;
    if (item == "int8" || item == "int4") {
      spec.dtype = item == "int8" ? DType::kInt8 : DType::kInt4;
      has_type = true;
    } else if (absl::ConsumePrefix(&rest, "block=")) {
      has_block = absl::SimpleAtoi(rest, &spec.block) && spec.block > 0 && spec.block <= kMaxBlock;
      if (has_block) continue;
      return absl::InvalidArgumentError(
          absl::StrCat("--qlora ", item, ": expected a whole number from 1 to ", kMaxBlock));
    } else {
      return absl::InvalidArgumentError(
          absl::StrCat("--qlora ", item, ": expected int4, int8 or int4,block=N"));
    }
  }
  if (!has_type) return absl::InvalidArgumentError("--qlora: in which type? int4 or int8");
  if (has_block && spec.dtype != DType::kInt4) {
    return absl::InvalidArgumentError(
        "--qlora int8: it has a scale for each output and no blocks; leave out block=, or take "
        "int4");
  }
  return spec;
}

absl::StatusOr<QuantizedWeight> QuantizeWeight(const Tensor& weight, const BaseQuantization& spec,
                                               int output_axis) {
  WEFT_RETURN_IF_ERROR(CheckWeight(weight));
  WEFT_ASSIGN_OR_RETURN(const Tensor w, CastTensor(weight, DType::kFloat32));
  const bool in_blocks = spec.dtype == DType::kInt4 && weight.shape().rank() == 2;
  QuantizedWeight result;
  result.axis = in_blocks ? 1 - output_axis : output_axis;
  result.block = in_blocks ? spec.block : 0;
  const GroupsOfElements groups(weight.shape(), result.axis, result.block);
  const int limit = spec.dtype == DType::kInt4 ? 7 : 127;
  WEFT_ASSIGN_OR_RETURN(const Tensor scales, ScalesOf(w, groups, limit, weight.dtype()));
  WEFT_ASSIGN_OR_RETURN(result.codes, Tensor::Zeros(spec.dtype, weight.shape()));
  const float* const from = w.data<float>().data();
  const float* const scale = scales.data<float>().data();
  groups.ForEachRun(w.num_elements(), [&](int64_t first, int64_t count, int64_t at, int64_t step) {
    for (int64_t i = 0; i < count; ++i) {
      SetCode(result.codes, first + i, CodeOf(from[first + i], scale[at + i * step], limit));
    }
  });
  WEFT_ASSIGN_OR_RETURN(result.scales, CastTensor(scales, weight.dtype()));
  return result;
}

absl::StatusOr<Tensor> DequantizeWeight(const QuantizedWeight& quantized) {
  const GroupsOfElements groups(quantized.codes.shape(), quantized.axis, quantized.block);
  WEFT_ASSIGN_OR_RETURN(const Tensor scales, CastTensor(quantized.scales, DType::kFloat32));
  WEFT_ASSIGN_OR_RETURN(Tensor whole, Tensor::Allocate(DType::kFloat32, quantized.codes.shape()));
  const float* const scale = scales.data<float>().data();
  float* const to = whole.mutable_data<float>().data();
  groups.ForEachRun(whole.num_elements(),
                    [&](int64_t first, int64_t count, int64_t at, int64_t step) {
                      for (int64_t i = 0; i < count; ++i) {
                        const auto code = static_cast<float>(CodeAt(quantized.codes, first + i));
                        to[first + i] = code * scale[at + i * step];
                      }
                    });
  return CastTensor(whole, quantized.scales.dtype());
}

}  // namespace weft
