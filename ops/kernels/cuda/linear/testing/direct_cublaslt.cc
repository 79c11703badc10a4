#include "ops/kernels/cuda/linear/testing/direct_cublaslt.h"

#include <cublasLt.h>

#include <algorithm>
#include <iterator>
#include <vector>

#include "absl/strings/str_cat.h"
#include "platform/status_macros.h"

namespace weft::testing {
namespace {

constexpr size_t kDirectWorkspace = size_t{128} << 20;
constexpr int kDirectAlgorithms = 8;

struct DirectFunctions {
  decltype(&cublasLtCreate) create = nullptr;
  decltype(&cublasLtDestroy) destroy = nullptr;
  decltype(&cublasLtMatmul) matmul = nullptr;
  decltype(&cublasLtMatmulAlgoGetHeuristic) heuristic = nullptr;
  decltype(&cublasLtMatrixLayoutCreate) create_layout = nullptr;
  decltype(&cublasLtMatrixLayoutDestroy) destroy_layout = nullptr;
  decltype(&cublasLtMatmulDescCreate) create_operation = nullptr;
  decltype(&cublasLtMatmulDescDestroy) destroy_operation = nullptr;
  decltype(&cublasLtMatmulPreferenceCreate) create_preference = nullptr;
  decltype(&cublasLtMatmulPreferenceDestroy) destroy_preference = nullptr;
  decltype(&cublasLtMatmulPreferenceSetAttribute) set_preference = nullptr;
};

absl::Status Said(cublasStatus_t status, const char* call) {
  if (status == CUBLAS_STATUS_SUCCESS) return absl::OkStatus();
  return absl::InternalError(
      absl::StrCat("cuBLASLt, called directly: ", call, " gives ", static_cast<int>(status)));
}

class OpenDirectCublasLt final : public DirectCublasLt {
 public:
  explicit OpenDirectCublasLt(const DirectFunctions& functions) : f_(functions) {}
  OpenDirectCublasLt(const OpenDirectCublasLt&) = delete;
  OpenDirectCublasLt& operator=(const OpenDirectCublasLt&) = delete;
  ~OpenDirectCublasLt() override {
    Forget();
    if (handle_ != nullptr) f_.destroy(handle_);
  }

  absl::Status Start() { return Said(f_.create(&handle_), "cublasLtCreate"); }

  absl::StatusOr<int> Choose(const DirectProduct& product) override {
    Forget();
    const cudaDataType_t type = product.dtype == DType::kBfloat16  ? CUDA_R_16BF
                                : product.dtype == DType::kFloat16 ? CUDA_R_16F
                                                                   : CUDA_R_32F;
    const auto m = static_cast<uint64_t>(product.m), n = static_cast<uint64_t>(product.n),
               k = static_cast<uint64_t>(product.k);
    // The library's matrices are column-major: it sees the transposes, and Y^T = B^T A^T.
    WEFT_RETURN_IF_ERROR(
        Said(f_.create_layout(&b_, type, n, k, product.n), "cublasLtMatrixLayoutCreate"));
    WEFT_RETURN_IF_ERROR(
        Said(f_.create_layout(&a_, type, k, m, product.k), "cublasLtMatrixLayoutCreate"));
    WEFT_RETURN_IF_ERROR(
        Said(f_.create_layout(&y_, type, n, m, product.n), "cublasLtMatrixLayoutCreate"));
    const cublasComputeType_t compute =
        product.tf32 ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F;
    WEFT_RETURN_IF_ERROR(
        Said(f_.create_operation(&operation_, compute, CUDA_R_32F), "cublasLtMatmulDescCreate"));
    WEFT_RETURN_IF_ERROR(
        Said(f_.create_preference(&preference_), "cublasLtMatmulPreferenceCreate"));
    const auto bytes = static_cast<uint64_t>(kDirectWorkspace);
    WEFT_RETURN_IF_ERROR(
        Said(f_.set_preference(preference_, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &bytes,
                               sizeof(bytes)),
             "cublasLtMatmulPreferenceSetAttribute"));
    cublasLtMatmulHeuristicResult_t results[kDirectAlgorithms] = {};
    int found = 0;
    WEFT_RETURN_IF_ERROR(Said(f_.heuristic(handle_, operation_, b_, a_, y_, y_, preference_,
                                           kDirectAlgorithms, results, &found),
                              "cublasLtMatmulAlgoGetHeuristic"));
    std::copy_if(results, results + found, std::back_inserter(algorithms_),
                 [](const auto& result) { return result.state == CUBLAS_STATUS_SUCCESS; });
    if (algorithms_.empty()) {
      return absl::UnimplementedError("cuBLASLt, called directly, has no algorithm");
    }
    return static_cast<int>(algorithms_.size());
  }

  size_t workspace_bytes() const override {
    size_t bytes = 0;
    for (const auto& algorithm : algorithms_) bytes = std::max(bytes, algorithm.workspaceSize);
    return bytes;
  }

  absl::Status Multiply(int i, const void* a, const void* b, void* y, void* workspace,
                        void* stream) override {
    const float alpha = 1, beta = 0;
    const cublasLtMatmulHeuristicResult_t& chosen = algorithms_[static_cast<size_t>(i)];
    return Said(
        f_.matmul(handle_, operation_, &alpha, b, b_, a, a_, &beta, y, y_, y, y_, &chosen.algo,
                  workspace, chosen.workspaceSize, static_cast<cudaStream_t>(stream)),
        "cublasLtMatmul");
  }

 private:
  // What was made for a product.
  void Forget() {
    for (cublasLtMatrixLayout_t* const layout : {&a_, &b_, &y_}) {
      if (*layout != nullptr) f_.destroy_layout(*layout);
      *layout = nullptr;
    }
    if (operation_ != nullptr) f_.destroy_operation(operation_);
    if (preference_ != nullptr) f_.destroy_preference(preference_);
    operation_ = nullptr;
    preference_ = nullptr;
    algorithms_.clear();
  }

  const DirectFunctions f_;
  cublasLtHandle_t handle_ = nullptr;
  cublasLtMatrixLayout_t a_ = nullptr, b_ = nullptr, y_ = nullptr;
  cublasLtMatmulDesc_t operation_ = nullptr;
  cublasLtMatmulPreference_t preference_ = nullptr;
  std::vector<cublasLtMatmulHeuristicResult_t> algorithms_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<DirectCublasLt>> DirectCublasLt::Open(const SymbolSource& symbols) {
  DirectFunctions f;
  WEFT_RETURN_IF_ERROR(BindSymbol(symbols, "cublasLtCreate", f.create));
  WEFT_RETURN_IF_ERROR(BindSymbol(symbols, "cublasLtDestroy", f.destroy));
  WEFT_RETURN_IF_ERROR(BindSymbol(symbols, "cublasLtMatmul", f.matmul));
  WEFT_RETURN_IF_ERROR(BindSymbol(symbols, "cublasLtMatmulAlgoGetHeuristic", f.heuristic));
  WEFT_RETURN_IF_ERROR(BindSymbol(symbols, "cublasLtMatrixLayoutCreate", f.create_layout));
  WEFT_RETURN_IF_ERROR(BindSymbol(symbols, "cublasLtMatrixLayoutDestroy", f.destroy_layout));
  WEFT_RETURN_IF_ERROR(BindSymbol(symbols, "cublasLtMatmulDescCreate", f.create_operation));
  WEFT_RETURN_IF_ERROR(BindSymbol(symbols, "cublasLtMatmulDescDestroy", f.destroy_operation));
  WEFT_RETURN_IF_ERROR(BindSymbol(symbols, "cublasLtMatmulPreferenceCreate", f.create_preference));
  WEFT_RETURN_IF_ERROR(
      BindSymbol(symbols, "cublasLtMatmulPreferenceDestroy", f.destroy_preference));
  WEFT_RETURN_IF_ERROR(
      BindSymbol(symbols, "cublasLtMatmulPreferenceSetAttribute", f.set_preference));
  auto opened = std::make_unique<OpenDirectCublasLt>(f);
  WEFT_RETURN_IF_ERROR(opened->Start());
  return opened;
}

}  // namespace weft::testing
