#include "ops/kernels/cuda/linear/cublaslt.h"

#include <cublasLt.h>

#include <algorithm>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "platform/status_macros.h"

namespace weft::cuda {
namespace {

// Algorithms that the heuristic is asked for; the first one that works is taken.
constexpr int kAlgorithms = 8;
// Sums of parts of k in the type of the computation, added by a kernel of its own: a fixed order.
// Left out are sums in place, whose order counters decide, and sums rounded to Y's type.
constexpr uint32_t kReductions = CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE;
// Stands for the address of a bias or of sums while an algorithm is chosen: as aligned as those of
// an arena.
constexpr uintptr_t kSomeBias = 64;

// The functions that are used. Each has the type that the header declares.
struct Functions {
  decltype(&cublasLtCreate) create = nullptr;
  decltype(&cublasLtDestroy) destroy = nullptr;
  decltype(&cublasLtGetStatusString) status_text = nullptr;
  decltype(&cublasLtMatmul) matmul = nullptr;
  decltype(&cublasLtMatmulAlgoGetHeuristic) heuristic = nullptr;
  decltype(&cublasLtMatrixLayoutCreate) create_layout = nullptr;
  decltype(&cublasLtMatrixLayoutDestroy) destroy_layout = nullptr;
  decltype(&cublasLtMatrixLayoutSetAttribute) set_layout = nullptr;
  decltype(&cublasLtMatmulDescCreate) create_operation = nullptr;
  decltype(&cublasLtMatmulDescDestroy) destroy_operation = nullptr;
  decltype(&cublasLtMatmulDescSetAttribute) set_operation = nullptr;
  decltype(&cublasLtMatmulPreferenceCreate) create_preference = nullptr;
  decltype(&cublasLtMatmulPreferenceDestroy) destroy_preference = nullptr;
  decltype(&cublasLtMatmulPreferenceSetAttribute) set_preference = nullptr;
};

absl::StatusOr<Functions> FindAll(const SymbolSource& symbols) {
  Functions f;
  WEFT_RETURN_IF_ERROR(BindSymbol(symbols, "cublasLtCreate", f.create));
  WEFT_RETURN_IF_ERROR(BindSymbol(symbols, "cublasLtDestroy", f.destroy));
  WEFT_RETURN_IF_ERROR(BindSymbol(symbols, "cublasLtGetStatusString", f.status_text));
  WEFT_RETURN_IF_ERROR(BindSymbol(symbols, "cublasLtMatmul", f.matmul));
  WEFT_RETURN_IF_ERROR(BindSymbol(symbols, "cublasLtMatmulAlgoGetHeuristic", f.heuristic));
  WEFT_RETURN_IF_ERROR(BindSymbol(symbols, "cublasLtMatrixLayoutCreate", f.create_layout));
  WEFT_RETURN_IF_ERROR(BindSymbol(symbols, "cublasLtMatrixLayoutDestroy", f.destroy_layout));
  WEFT_RETURN_IF_ERROR(BindSymbol(symbols, "cublasLtMatrixLayoutSetAttribute", f.set_layout));
  WEFT_RETURN_IF_ERROR(BindSymbol(symbols, "cublasLtMatmulDescCreate", f.create_operation));
  WEFT_RETURN_IF_ERROR(BindSymbol(symbols, "cublasLtMatmulDescDestroy", f.destroy_operation));
  WEFT_RETURN_IF_ERROR(BindSymbol(symbols, "cublasLtMatmulDescSetAttribute", f.set_operation));
  WEFT_RETURN_IF_ERROR(BindSymbol(symbols, "cublasLtMatmulPreferenceCreate", f.create_preference));
  WEFT_RETURN_IF_ERROR(
      BindSymbol(symbols, "cublasLtMatmulPreferenceDestroy", f.destroy_preference));
  WEFT_RETURN_IF_ERROR(
      BindSymbol(symbols, "cublasLtMatmulPreferenceSetAttribute", f.set_preference));
  return f;
}

// OK, or Internal with what was asked of the library and what it says.
absl::Status Check(const Functions& f, cublasStatus_t status, absl::string_view what) {
  if (status == CUBLAS_STATUS_SUCCESS) return absl::OkStatus();
  return absl::InternalError(absl::StrCat("cuBLASLt fails to ", what, ": ", f.status_text(status),
                                          " (", static_cast<int>(status), ")"));
}

// Owns what the library made, until it is destroyed by `destroy`.
template <typename Handle, typename Destroy>
class Owned {
 public:
  Owned() = default;
  Owned(Handle handle, Destroy destroy) : handle_(handle), destroy_(destroy) {}
  Owned(Owned&& other) noexcept { *this = std::move(other); }
  Owned& operator=(Owned&& other) noexcept {
    std::swap(handle_, other.handle_);
    std::swap(destroy_, other.destroy_);
    return *this;
  }
  ~Owned() {
    if (handle_ != nullptr) destroy_(handle_);
  }
  Handle get() const { return handle_; }

 private:
  Handle handle_ = nullptr;
  Destroy destroy_ = nullptr;
};
using Library = Owned<cublasLtHandle_t, decltype(&cublasLtDestroy)>;
using Layout = Owned<cublasLtMatrixLayout_t, decltype(&cublasLtMatrixLayoutDestroy)>;
using Operation = Owned<cublasLtMatmulDesc_t, decltype(&cublasLtMatmulDescDestroy)>;
using Preference = Owned<cublasLtMatmulPreference_t, decltype(&cublasLtMatmulPreferenceDestroy)>;

cudaDataType_t DataTypeOf(DType dtype) {
  switch (dtype) {
    case DType::kFloat64:
      return CUDA_R_64F;
    case DType::kFloat16:
      return CUDA_R_16F;
    case DType::kBfloat16:
      return CUDA_R_16BF;
    default:
      return CUDA_R_32F;
  }
}

cublasComputeType_t ComputeTypeOf(const MatrixProductSpec& spec) {
  if (spec.dtype == DType::kFloat64) return CUBLAS_COMPUTE_64F;
  return spec.tf32 ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F;
}

// A row-major [rows, columns] with `row` elements from row to row is the library's [columns, rows]
// with that leading dimension.
absl::StatusOr<Layout> MakeLayout(const Functions& f, DType dtype, int64_t rows, int64_t columns,
                                  int64_t row, int64_t batches, int64_t stride) {
  cublasLtMatrixLayout_t handle = nullptr;
  WEFT_RETURN_IF_ERROR(
      Check(f,
            f.create_layout(&handle, DataTypeOf(dtype), static_cast<uint64_t>(columns),
                            static_cast<uint64_t>(rows), row),
            "describe a matrix"));
  Layout layout(handle, f.destroy_layout);
  if (batches == 1) return layout;
  const auto count = static_cast<int32_t>(batches);
  WEFT_RETURN_IF_ERROR(
      Check(f, f.set_layout(handle, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &count, sizeof(count)),
            "describe a batch"));
  WEFT_RETURN_IF_ERROR(Check(
      f, f.set_layout(handle, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, &stride, sizeof(stride)),
      "describe a batch"));
  return layout;
}

template <typename T>
absl::Status SetOperation(const Functions& f, const Operation& operation,
                          cublasLtMatmulDescAttributes_t attribute, const T& value) {
  return Check(f, f.set_operation(operation.get(), attribute, &value, sizeof(value)),
               "describe a product");
}

// The library's first operand is our B. Its GELU is the one by tanh.
uint32_t EpilogueOf(const MatrixProductSpec& spec) {
  if (spec.sums == SummedOperand::kA) return CUBLASLT_EPILOGUE_BGRADB;
  if (spec.sums == SummedOperand::kB) return CUBLASLT_EPILOGUE_BGRADA;
  switch (spec.epilogue) {
    case ProductEpilogue::kTanhGelu:
      if (spec.has_aux) {
        return spec.has_bias ? CUBLASLT_EPILOGUE_GELU_AUX_BIAS : CUBLASLT_EPILOGUE_GELU_AUX;
      }
      return spec.has_bias ? CUBLASLT_EPILOGUE_GELU_BIAS : CUBLASLT_EPILOGUE_GELU;
    case ProductEpilogue::kTanhGeluGrad:
      return CUBLASLT_EPILOGUE_DGELU;
    case ProductEpilogue::kNone:
      break;
  }
  return spec.has_bias ? CUBLASLT_EPILOGUE_BIAS : CUBLASLT_EPILOGUE_DEFAULT;
}

absl::StatusOr<Operation> MakeOperation(const Functions& f, const MatrixProductSpec& spec) {
  cublasLtMatmulDesc_t handle = nullptr;
  const cudaDataType_t scale = spec.dtype == DType::kFloat64 ? CUDA_R_64F : CUDA_R_32F;
  WEFT_RETURN_IF_ERROR(
      Check(f, f.create_operation(&handle, ComputeTypeOf(spec), scale), "describe a product"));
  Operation operation(handle, f.destroy_operation);
  const auto flag = [](bool transposed) {
    return static_cast<int32_t>(transposed ? CUBLAS_OP_T : CUBLAS_OP_N);
  };
  // Its first operand is our B.
  WEFT_RETURN_IF_ERROR(SetOperation(f, operation, CUBLASLT_MATMUL_DESC_TRANSA, flag(spec.trans_b)));
  WEFT_RETURN_IF_ERROR(SetOperation(f, operation, CUBLASLT_MATMUL_DESC_TRANSB, flag(spec.trans_a)));
  const uint32_t epilogue = EpilogueOf(spec);
  if (epilogue == CUBLASLT_EPILOGUE_DEFAULT) return operation;
  WEFT_RETURN_IF_ERROR(SetOperation(f, operation, CUBLASLT_MATMUL_DESC_EPILOGUE, epilogue));
  if (spec.has_bias || spec.sums != SummedOperand::kNone) {
    WEFT_RETURN_IF_ERROR(SetOperation(f, operation, CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE,
                                      static_cast<int32_t>(DataTypeOf(spec.dtype))));
    WEFT_RETURN_IF_ERROR(SetOperation(f, operation, CUBLASLT_MATMUL_DESC_BIAS_POINTER, kSomeBias));
  }
  if (!spec.has_aux) return operation;
  // Its type is that of Y where nothing is said. The address stands for one as far aligned.
  WEFT_RETURN_IF_ERROR(
      SetOperation(f, operation, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, spec.y_row));
  if (spec.batches > 1) {
    WEFT_RETURN_IF_ERROR(
        SetOperation(f, operation, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_BATCH_STRIDE, spec.y_batch));
  }
  WEFT_RETURN_IF_ERROR(SetOperation(f, operation, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER,
                                    static_cast<uintptr_t>(spec.y_alignment)));
  return operation;
}

template <typename T>
absl::Status SetPreference(const Functions& f, const Preference& preference,
                           cublasLtMatmulPreferenceAttributes_t attribute, const T& value) {
  return Check(f, f.set_preference(preference.get(), attribute, &value, sizeof(value)),
               "say what an algorithm may need");
}

absl::StatusOr<Preference> MakePreference(const Functions& f, const MatrixProductSpec& spec,
                                          size_t workspace_limit) {
  cublasLtMatmulPreference_t handle = nullptr;
  WEFT_RETURN_IF_ERROR(Check(f, f.create_preference(&handle), "say what an algorithm may need"));
  Preference preference(handle, f.destroy_preference);
  WEFT_RETURN_IF_ERROR(SetPreference(f, preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES,
                                     static_cast<uint64_t>(workspace_limit)));
  WEFT_RETURN_IF_ERROR(
      SetPreference(f, preference, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, kReductions));
  const std::pair<cublasLtMatmulPreferenceAttributes_t, int> alignments[] = {
      {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, spec.b_alignment},
      {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, spec.a_alignment},
      {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, spec.y_alignment},
      {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, spec.y_alignment}};
  for (const auto& [attribute, bytes] : alignments) {
    WEFT_RETURN_IF_ERROR(SetPreference(f, preference, attribute, static_cast<uint32_t>(bytes)));
  }
  return preference;
}

// cuBLASLt refuses a workspace that is not aligned so (cublasLtMatmul in NVIDIA's reference).
constexpr size_t kWorkspaceAlignment = 256;

class CublasLtProduct final : public PreparedProduct {
 public:
  CublasLtProduct(const Functions& functions, cublasLtHandle_t library,
                  const MatrixProductSpec& spec)
      : f_(functions), library_(library), spec_(spec) {}

  // Describes the product and chooses its algorithm.
  absl::Status Prepare(size_t workspace_limit) {
    const MatrixProductSpec& s = spec_;
    WEFT_ASSIGN_OR_RETURN(a_, MakeLayout(f_, s.dtype, s.trans_a ? s.k : s.m, s.trans_a ? s.m : s.k,
                                         s.a_row, s.batches, s.a_batch));
    WEFT_ASSIGN_OR_RETURN(b_, MakeLayout(f_, s.dtype, s.trans_b ? s.n : s.k, s.trans_b ? s.k : s.n,
                                         s.b_row, s.batches, s.b_batch));
    WEFT_ASSIGN_OR_RETURN(y_, MakeLayout(f_, s.y_dtype, s.m, s.n, s.y_row, s.batches, s.y_batch));
    WEFT_ASSIGN_OR_RETURN(operation_, MakeOperation(f_, s));
    WEFT_ASSIGN_OR_RETURN(const Preference preference, MakePreference(f_, s, workspace_limit));
    cublasLtMatmulHeuristicResult_t results[kAlgorithms] = {};
    int found = 0;
    const cublasStatus_t status =
        f_.heuristic(library_, operation_.get(), b_.get(), a_.get(), y_.get(), y_.get(),
                     preference.get(), kAlgorithms, results, &found);
    if (status != CUBLAS_STATUS_SUCCESS && status != CUBLAS_STATUS_NOT_SUPPORTED) {
      return Check(f_, status, absl::StrCat("choose an algorithm for ", s.ToString()));
    }
    for (int i = 0; i < found && status == CUBLAS_STATUS_SUCCESS; ++i) {
      if (results[i].state != CUBLAS_STATUS_SUCCESS) continue;
      if (results[i].workspaceSize > workspace_limit) continue;
      algorithm_ = results[i].algo;
      workspace_bytes_ = results[i].workspaceSize;
      return absl::OkStatus();
    }
    return absl::UnimplementedError(
        absl::StrCat("cuBLASLt has no algorithm for the product ", s.ToString()));
  }

  size_t workspace_bytes() const override {
    return workspace_bytes_ == 0 ? 0 : workspace_bytes_ + kWorkspaceAlignment - kAlignment;
  }

  absl::Status Multiply(const ProductOperands& operands, void* workspace,
                        LaunchQueue queue) override {
    const uintptr_t address = reinterpret_cast<uintptr_t>(workspace) + kWorkspaceAlignment - 1;
    workspace = reinterpret_cast<void*>(address / kWorkspaceAlignment * kWorkspaceAlignment);
    if (spec_.has_bias) {
      WEFT_RETURN_IF_ERROR(
          SetOperation(f_, operation_, CUBLASLT_MATMUL_DESC_BIAS_POINTER, operands.bias));
    }
    if (spec_.sums != SummedOperand::kNone) {
      WEFT_RETURN_IF_ERROR(
          SetOperation(f_, operation_, CUBLASLT_MATMUL_DESC_BIAS_POINTER, operands.sums));
    }
    if (spec_.has_aux) {
      WEFT_RETURN_IF_ERROR(
          SetOperation(f_, operation_, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, operands.aux));
    }
    const float alpha = static_cast<float>(spec_.alpha);
    const float beta = static_cast<float>(spec_.beta);
    const bool is_double = spec_.dtype == DType::kFloat64;
    const void* c = operands.c == nullptr ? operands.y : operands.c;
    const cublasStatus_t status =
        f_.matmul(library_, operation_.get(),
                  is_double ? static_cast<const void*>(&spec_.alpha) : &alpha, operands.b, b_.get(),
                  operands.a, a_.get(), is_double ? static_cast<const void*>(&spec_.beta) : &beta,
                  c, y_.get(), operands.y, y_.get(), &algorithm_, workspace, workspace_bytes_,
                  static_cast<cudaStream_t>(queue.stream));
    if (status == CUBLAS_STATUS_SUCCESS) return absl::OkStatus();
    return Check(f_, status, absl::StrCat("compute ", spec_.ToString()));
  }

 private:
  const Functions f_;
  const cublasLtHandle_t library_;
  const MatrixProductSpec spec_;
  Layout a_, b_, y_;
  Operation operation_;
  cublasLtMatmulAlgo_t algorithm_ = {};
  size_t workspace_bytes_ = 0;
};

class CublasLt final : public BlasLt {
 public:
  CublasLt(const Functions& functions, Library library, CublasLtOptions options)
      : f_(functions), library_(std::move(library)), options_(std::move(options)) {}

  absl::StatusOr<std::unique_ptr<PreparedProduct>> Prepare(const MatrixProductSpec& spec) override {
    WEFT_RETURN_IF_ERROR(CheckProduct(spec));
    WEFT_RETURN_IF_ERROR(options_.make_current());
    auto product = std::make_unique<CublasLtProduct>(f_, library_.get(), spec);
    WEFT_RETURN_IF_ERROR(product->Prepare(options_.workspace_limit));
    return product;
  }

 private:
  const Functions f_;
  const Library library_;
  const CublasLtOptions options_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<BlasLt>> OpenCublasLt(const SymbolSource& symbols,
                                                     CublasLtOptions options) {
  WEFT_ASSIGN_OR_RETURN(const Functions f, FindAll(symbols));
  WEFT_RETURN_IF_ERROR(options.make_current());
  cublasLtHandle_t handle = nullptr;
  WEFT_RETURN_IF_ERROR(Check(f, f.create(&handle), "start"));
  return std::make_unique<CublasLt>(f, Library(handle, f.destroy), std::move(options));
}

}  // namespace weft::cuda
