// BlasLt: what our kernels ask of cuBLASLt. The library itself is in cublaslt.h; tests have one
// that computes on the emulated GPU (testing/).
#ifndef WEFT_OPS_KERNELS_CUDA_LINEAR_BLAS_LT_H_
#define WEFT_OPS_KERNELS_CUDA_LINEAR_BLAS_LT_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "ops/kernels/cuda/language/launch_grid.h"
#include "tensor/device.h"
#include "tensor/dtype.h"

namespace weft::cuda {

// What becomes of P, the product with its bias, before it is rounded to Y.
enum class ProductEpilogue : uint8_t {
  kNone,          // Y = P
  kTanhGelu,      // Y = gelu(P), by tanh; Aux, where it is wanted, becomes P
  kTanhGeluGrad,  // Y = P gelu'(Aux), by tanh
};

// Whose elements are added up along k, beside the product.
enum class SummedOperand : uint8_t { kNone, kA, kB };

// Y[i] = epilogue(alpha op(A[i]) op(B[i]) + beta C[i] (+ bias, in each row)) for `batches`
// matrices, all row-major. C and Aux lie as Y does; C may be Y. Strides are in elements.
struct MatrixProductSpec {
  DType dtype = DType::kFloat32;    // of A, B and bias: float32, float64, float16, bfloat16
  DType y_dtype = DType::kFloat32;  // that of A, or float32 for the 16-bit ones
  // float32 operands may be rounded to TF32 (10 bits of mantissa).
  bool tf32 = false;
  int64_t m = 0, n = 0, k = 0;  // at least 1
  bool trans_a = false;         // A is stored [k, m]
  bool trans_b = false;         // B is stored [n, k]
  // From row to row as stored.
  int64_t a_row = 0, b_row = 0, y_row = 0;
  int64_t batches = 1;
  // From matrix to matrix; 0 for a matrix that all share (not Y).
  int64_t a_batch = 0, b_batch = 0, y_batch = 0;
  double alpha = 1;
  double beta = 0;  // 0: C is not read
  bool has_bias = false;
  // Not of float64, nor where Y has another type than A.
  ProductEpilogue epilogue = ProductEpilogue::kNone;
  // Rows and matrices of Y then begin at multiples of kAuxColumns elements.
  bool has_aux = false;
  // A: m sums over the rows of a transposed A. B: n sums over the rows of a B that is not. They
  // have Y's type, and the product has one matrix and nothing else beside it.
  SummedOperand sums = SummedOperand::kNone;
  // Bytes that the addresses of A, B, Y and bias are multiples of: a power of two.
  int a_alignment = 64, b_alignment = 64, y_alignment = 64;

  // "float16 8 x [128,64] [64,32]^T + bias, tanh gelu with its operand"
  std::string ToString() const;
};

// The library's demand on the steps of Aux (CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD).
inline constexpr int64_t kAuxColumns = 8;

// Internal with the field that no product can have.
absl::Status CheckProduct(const MatrixProductSpec& spec);

// Addresses on the device.
struct ProductOperands {
  const void* a = nullptr;
  const void* b = nullptr;
  const void* c = nullptr;  // null: Y itself
  void* y = nullptr;
  const void* bias = nullptr;  // n elements; null without has_bias
  void* aux = nullptr;         // null without has_aux; kTanhGeluGrad only reads it
  void* sums = nullptr;        // null without `sums`
};

// A product whose algorithm is chosen. Used by one thread at a time.
class PreparedProduct {
 public:
  virtual ~PreparedProduct() = default;
  // Memory of the device that Multiply wants, aligned to 64 bytes.
  virtual size_t workspace_bytes() const = 0;
  // Puts the product behind what is on the queue; does not wait. The same operands give the same
  // bits. Internal with the library's code.
  virtual absl::Status Multiply(const ProductOperands& operands, void* workspace,
                                LaunchQueue queue) = 0;
};

// The library on one device. Thread-safe. Outlives its products.
class BlasLt {
 public:
  virtual ~BlasLt() = default;
  // Unimplemented when the library has no algorithm for it.
  virtual absl::StatusOr<std::unique_ptr<PreparedProduct>> Prepare(
      const MatrixProductSpec& spec) = 0;
};

// Gives the library of a device, or why there is none.
using BlasLtProvider = absl::StatusOr<BlasLt*> (*)(Device& device);

// Where factories find it. FailedPrecondition when this program has no cuBLASLt; else the
// provider's error.
absl::StatusOr<BlasLt*> BlasLtOf(Device& device);
// cublaslt.cc and the one of the tests say it before main. The last one counts.
bool SetBlasLtProvider(BlasLtProvider provider);

}  // namespace weft::cuda

#endif  // WEFT_OPS_KERNELS_CUDA_LINEAR_BLAS_LT_H_
