#include "ops/kernels/cuda/linear/blas_lt.h"

#include <algorithm>
#include <atomic>
#include <limits>

#include "absl/strings/str_cat.h"

namespace weft::cuda {
namespace {

std::atomic<BlasLtProvider> blas_lt_provider{nullptr};

bool IsProductType(DType dtype) {
  return dtype == DType::kFloat32 || dtype == DType::kFloat64 || dtype == DType::kFloat16 ||
         dtype == DType::kBfloat16;
}

bool IsPowerOfTwo(int value) { return value > 0 && (value & (value - 1)) == 0; }

// Of the library: sizes that it takes.
constexpr int64_t kMaxSize = std::numeric_limits<int32_t>::max();

}  // namespace

std::string MatrixProductSpec::ToString() const {
  const auto matrix = [&](int64_t rows, int64_t columns, bool transposed) {
    return transposed ? absl::StrCat("[", columns, ",", rows, "]^T")
                      : absl::StrCat("[", rows, ",", columns, "]");
  };
  return absl::StrCat(std::string(DTypeName(dtype)), " ", batches, " x ", matrix(m, k, trans_a),
                      " ", matrix(k, n, trans_b));
}

absl::Status CheckProduct(const MatrixProductSpec& spec) {
  const auto bad = [&](absl::string_view what) {
    return absl::InternalError(
        absl::StrCat("a matrix product ", spec.ToString(), " cannot have ", what));
  };
  if (!IsProductType(spec.dtype)) return bad("this element type");
  const bool is_16_bit = spec.dtype == DType::kFloat16 || spec.dtype == DType::kBfloat16;
  if (spec.y_dtype != spec.dtype && !(is_16_bit && spec.y_dtype == DType::kFloat32)) {
    return bad(absl::StrCat("results of type ", std::string(DTypeName(spec.y_dtype))));
  }
  if (spec.has_bias && spec.y_dtype != spec.dtype) return bad("a bias of another type than Y");
  if (spec.m < 1 || spec.n < 1 || spec.k < 1 || spec.batches < 1) return bad("no elements");
  if (spec.a_row < (spec.trans_a ? spec.m : spec.k)) return bad("rows of A that overlap");
  if (spec.b_row < (spec.trans_b ? spec.k : spec.n)) return bad("rows of B that overlap");
  if (spec.y_row < spec.n) return bad("rows of Y that overlap");
  if (spec.a_batch < 0 || spec.b_batch < 0) return bad("a negative stride");
  if (spec.batches > 1 && spec.y_batch < spec.n) return bad("matrices of Y that overlap");
  if (!IsPowerOfTwo(spec.a_alignment) || !IsPowerOfTwo(spec.b_alignment) ||
      !IsPowerOfTwo(spec.y_alignment)) {
    return bad("an alignment that is not a power of two");
  }
  if (std::max({spec.m, spec.n, spec.k, spec.batches}) > kMaxSize) {
    return absl::UnimplementedError(
        absl::StrCat("cuBLASLt takes sizes below 2^31, the product is ", spec.ToString()));
  }
  return absl::OkStatus();
}

absl::StatusOr<BlasLt*> BlasLtOf(Device& device) {
  const BlasLtProvider provider = blas_lt_provider.load();
  if (provider != nullptr) return provider(device);
  return absl::FailedPreconditionError(
      absl::StrCat("matrix products on ", device.info().name,
                   " need cuBLASLt, and this program is built without it (--config=cuda)"));
}

bool SetBlasLtProvider(BlasLtProvider provider) {
  blas_lt_provider.store(provider);
  return true;
}

}  // namespace weft::cuda
