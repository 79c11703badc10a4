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

// " + bias, tanh gelu"; "" where nothing is beside the product.
std::string BesideProduct(const MatrixProductSpec& spec) {
  std::string text = spec.has_bias ? " + bias" : "";
  if (spec.epilogue == ProductEpilogue::kTanhGelu) {
    absl::StrAppend(&text, ", tanh gelu", spec.has_aux ? " with its operand" : "");
  }
  if (spec.epilogue == ProductEpilogue::kTanhGeluGrad) text += ", gradient of tanh gelu";
  if (spec.sums == SummedOperand::kA) text += ", sums of A";
  if (spec.sums == SummedOperand::kB) text += ", sums of B";
  return text;
}

// What an epilogue cannot have; "" where all is well.
absl::string_view WrongEpilogue(const MatrixProductSpec& spec) {
  const bool has_epilogue = spec.epilogue != ProductEpilogue::kNone;
  const bool has_sums = spec.sums != SummedOperand::kNone;
  if ((has_epilogue || has_sums) && (spec.dtype == DType::kFloat64 || spec.y_dtype != spec.dtype)) {
    return "an epilogue for these types";
  }
  if (spec.epilogue == ProductEpilogue::kTanhGeluGrad && (!spec.has_aux || spec.has_bias)) {
    return "a gradient of gelu without its operand, or with a bias";
  }
  if (spec.has_aux && !has_epilogue) return "Aux without an epilogue";
  if (spec.has_aux &&
      (spec.y_row % kAuxColumns != 0 || (spec.batches > 1 && spec.y_batch % kAuxColumns != 0))) {
    return "rows of Aux that begin at odd places";
  }
  if (has_sums && (has_epilogue || spec.has_bias || spec.batches > 1)) {
    return "sums of an operand beside a bias, an epilogue or other matrices";
  }
  if (spec.sums == SummedOperand::kA && !spec.trans_a) return "sums along the columns of A";
  if (spec.sums == SummedOperand::kB && spec.trans_b) return "sums along the columns of B";
  return "";
}

}  // namespace

std::string MatrixProductSpec::ToString() const {
  const auto matrix = [&](int64_t rows, int64_t columns, bool transposed) {
    return transposed ? absl::StrCat("[", columns, ",", rows, "]^T")
                      : absl::StrCat("[", rows, ",", columns, "]");
  };
  return absl::StrCat(std::string(DTypeName(dtype)), " ", batches, " x ", matrix(m, k, trans_a),
                      " ", matrix(k, n, trans_b), BesideProduct(*this));
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
  if (const absl::string_view wrong = WrongEpilogue(spec); !wrong.empty()) return bad(wrong);
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
