#include "ops/kernels/cuda/linear/testing/recording_blas_lt.h"

#include <cmath>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "ops/kernels/cuda/language/launch.h"
#include "ops/kernels/cuda/language/scalar.h"
#include "ops/testing/emulator/emulated_launch.h"
#include "platform/status_macros.h"

namespace weft::testing {
namespace {

constexpr int kThreads = 64;
// Of a bias and of sums: cublaslt.cc says it of both.
constexpr int64_t kRowAlignment = 64;
// The library computes squares of results at once; a thread here computes one result after another.
constexpr int64_t kMaxBlocks = 8;

// float32 with the 10 bits of mantissa that TF32 has, rounded to nearest even.
inline float ToTf32(float value) {
  uint32_t bits;
  std::memcpy(&bits, &value, sizeof(bits));
  bits += 0xfff + ((bits >> 13) & 1);
  bits &= ~uint32_t{0x1fff};
  std::memcpy(&value, &bits, sizeof(bits));
  return value;
}

// As published (Hendrycks and Gimpel, arXiv:1606.08415), and its derivative; on the host alone.
constexpr double kCubic = 0.044715;
inline double TanhOf(double x) { return std::tanh(std::sqrt(M_2_PI) * (x + kCubic * x * x * x)); }
inline double TanhGelu(double x) { return 0.5 * x * (1 + TanhOf(x)); }
inline double TanhGeluSlope(double x) {
  const double tanh = TanhOf(x);
  return 0.5 * (1 + tanh) +
         0.5 * x * (1 - tanh * tanh) * std::sqrt(M_2_PI) * (1 + 3 * kCubic * x * x);
}

// T: of A, B and bias; R: of C, Y, Aux and sums.
template <typename T, typename R>
struct ProductBody {
  const T* a;
  const T* b;
  const R* c;
  R* y;
  const T* bias;
  R* aux;
  R* sums;
  unsigned char* workspace;
  int64_t workspace_bytes;
  int64_t m, n, k, batches;
  int64_t a_row, a_column, b_row, b_column, y_row;
  int64_t a_batch, b_batch, y_batch;
  double alpha, beta;
  bool tf32;
  cuda::ProductEpilogue epilogue;
  bool sums_a;  // else B

  template <class Gpu>
  void operator()(Gpu& gpu) const {
    const auto scratch = gpu.Global(workspace);
    for (int64_t i = gpu.index(); i < workspace_bytes; i += gpu.stride()) scratch[i] = 0xa5;
    for (int64_t i = gpu.index(); i < batches * m * n; i += gpu.stride()) {
      Element(gpu, i / (m * n), i / n % m, i % n);
    }
    if (sums == nullptr) return;
    for (int64_t i = gpu.index(); i < (sums_a ? m : n); i += gpu.stride()) Sum(gpu, i);
  }

 private:
  double Operand(T value) const {
    const auto wide = cuda::Widen(value);
    return tf32 ? ToTf32(static_cast<float>(wide)) : static_cast<double>(wide);
  }

  template <class Gpu>
  void Element(Gpu& gpu, int64_t batch, int64_t row, int64_t column) const {
    const auto a_matrix = gpu.Global(a) + batch * a_batch;
    const auto b_matrix = gpu.Global(b) + batch * b_batch;
    double sum = 0;
    for (int64_t i = 0; i < k; ++i) {
      const T left = a_matrix[row * a_row + i * a_column];
      const T right = b_matrix[i * b_row + column * b_column];
      sum += Operand(left) * Operand(right);
    }
    const int64_t place = batch * y_batch + row * y_row + column;
    sum *= alpha;
    if (beta != 0) {
      const R addend = gpu.Global(c)[place];
      sum += beta * static_cast<double>(cuda::Widen(addend));
    }
    if (bias != nullptr) {
      const T addend = gpu.Global(bias)[column];
      sum += static_cast<double>(cuda::Widen(addend));
    }
    if (epilogue == cuda::ProductEpilogue::kTanhGeluGrad) {
      const R operand = gpu.Global(aux)[place];
      sum *= TanhGeluSlope(static_cast<double>(cuda::Widen(operand)));
    } else if (epilogue == cuda::ProductEpilogue::kTanhGelu) {
      if (aux != nullptr) gpu.Global(aux)[place] = Rounded(sum);
      sum = TanhGelu(sum);
    }
    gpu.Global(y)[place] = Rounded(sum);
  }

  // Of what is multiplied with all rows of the other operand.
  template <class Gpu>
  void Sum(Gpu& gpu, int64_t place) const {
    double sum = 0;
    for (int64_t i = 0; i < k; ++i) {
      const T value = sums_a ? gpu.Global(a)[place * a_row + i * a_column]
                             : gpu.Global(b)[i * b_row + place * b_column];
      sum += static_cast<double>(cuda::Widen(value));
    }
    gpu.Global(sums)[place] = Rounded(sum);
  }

  static R Rounded(double value) { return cuda::Narrow<R>(static_cast<cuda::Compute<R>>(value)); }
};

template <typename T, typename R>
int LaunchProduct(const cuda::MatrixProductSpec& spec, const cuda::ProductOperands& operands,
                  void* workspace, size_t workspace_bytes, cuda::LaunchQueue queue) {
  ProductBody<T, R> body;
  body.a = static_cast<const T*>(operands.a);
  body.b = static_cast<const T*>(operands.b);
  body.c = static_cast<const R*>(operands.c == nullptr ? operands.y : operands.c);
  body.y = static_cast<R*>(operands.y);
  body.bias = static_cast<const T*>(operands.bias);
  body.aux = static_cast<R*>(operands.aux);
  body.sums = static_cast<R*>(operands.sums);
  body.epilogue = spec.epilogue;
  body.sums_a = spec.sums == cuda::SummedOperand::kA;
  body.workspace = static_cast<unsigned char*>(workspace);
  body.workspace_bytes = static_cast<int64_t>(workspace_bytes);
  body.m = spec.m;
  body.n = spec.n;
  body.k = spec.k;
  body.batches = spec.batches;
  body.a_row = spec.trans_a ? 1 : spec.a_row;
  body.a_column = spec.trans_a ? spec.a_row : 1;
  body.b_row = spec.trans_b ? 1 : spec.b_row;
  body.b_column = spec.trans_b ? spec.b_row : 1;
  body.y_row = spec.y_row;
  body.a_batch = spec.a_batch;
  body.b_batch = spec.b_batch;
  body.y_batch = spec.y_batch;
  body.alpha = spec.alpha;
  body.beta = spec.beta;
  body.tf32 = spec.tf32;
  const int64_t results = spec.batches * spec.m * spec.n;
  const cuda::LaunchGrid grid = {cuda::Blocks(results, kThreads, kMaxBlocks), kThreads};
  return cuda::Launch<kThreads>(queue, grid, body);
}

int LaunchByType(const cuda::MatrixProductSpec& spec, const cuda::ProductOperands& operands,
                 void* workspace, size_t bytes, cuda::LaunchQueue queue) {
  const bool wide = spec.y_dtype == DType::kFloat32;
  switch (spec.dtype) {
    case DType::kFloat64:
      return LaunchProduct<double, double>(spec, operands, workspace, bytes, queue);
    case DType::kFloat16:
      return wide ? LaunchProduct<Float16, float>(spec, operands, workspace, bytes, queue)
                  : LaunchProduct<Float16, Float16>(spec, operands, workspace, bytes, queue);
    case DType::kBfloat16:
      return wide ? LaunchProduct<Bfloat16, float>(spec, operands, workspace, bytes, queue)
                  : LaunchProduct<Bfloat16, Bfloat16>(spec, operands, workspace, bytes, queue);
    default:
      return LaunchProduct<float, float>(spec, operands, workspace, bytes, queue);
  }
}

bool IsAligned(const void* address, int64_t bytes) {
  return reinterpret_cast<uintptr_t>(address) % static_cast<uintptr_t>(bytes) == 0;
}

absl::StatusOr<cuda::BlasLt*> RecordingLibrary(Device&) { return &RecordingBlasLt::Get(); }

[[maybe_unused]] const bool is_the_library = cuda::SetBlasLtProvider(RecordingLibrary);

}  // namespace

class RecordedProduct final : public cuda::PreparedProduct {
 public:
  RecordedProduct(RecordingBlasLt& owner, const cuda::MatrixProductSpec& spec)
      : owner_(owner), spec_(spec), bytes_((spec.m + spec.n + spec.k) % 3 * 96) {}

  size_t workspace_bytes() const override { return bytes_; }

  absl::Status Multiply(const cuda::ProductOperands& operands, void* workspace,
                        cuda::LaunchQueue queue) override {
    WEFT_RETURN_IF_ERROR(Check(operands, workspace, queue));
    owner_.Record({spec_, operands});
    const int code = LaunchByType(spec_, operands, workspace, bytes_, queue);
    if (code == 0) return absl::OkStatus();
    return Broken(absl::StrCat("the emulator refuses with error ", code));
  }

 private:
  absl::Status Broken(absl::string_view what) const {
    return absl::InternalError(absl::StrCat("product ", spec_.ToString(), ": ", what));
  }

  absl::Status Check(const cuda::ProductOperands& operands, void* workspace,
                     cuda::LaunchQueue queue) const {
    if (queue.stream == nullptr) return Broken("no stream");
    if (operands.a == nullptr || operands.b == nullptr || operands.y == nullptr) {
      return Broken("an operand is null");
    }
    if ((operands.bias != nullptr) != spec_.has_bias) return Broken("a bias against the spec");
    if ((operands.aux != nullptr) != spec_.has_aux) return Broken("Aux against the spec");
    if ((operands.sums != nullptr) != (spec_.sums != cuda::SummedOperand::kNone)) {
      return Broken("sums against the spec");
    }
    if (operands.c != nullptr && spec_.beta == 0) return Broken("C is given and not used");
    if (!IsAligned(operands.a, spec_.a_alignment) || !IsAligned(operands.b, spec_.b_alignment) ||
        !IsAligned(operands.y, spec_.y_alignment) || !IsAligned(operands.c, spec_.y_alignment) ||
        !IsAligned(operands.aux, spec_.y_alignment) || !IsAligned(operands.bias, kRowAlignment) ||
        !IsAligned(operands.sums, kRowAlignment)) {
      return Broken("an address is less aligned than was said");
    }
    for (const void* written : {operands.y, operands.aux, operands.sums}) {
      if (written == nullptr) continue;
      if (written == operands.a || written == operands.b || written == operands.bias) {
        return Broken("a result lies over an operand");
      }
    }
    if (operands.aux == operands.y || operands.sums == operands.y) {
      return Broken("two results lie at one place");
    }
    if (bytes_ > 0 && workspace == nullptr) return Broken("no workspace");
    if (bytes_ > 0 && !IsAligned(workspace, 16)) return Broken("the workspace is not aligned");
    return absl::OkStatus();
  }

  RecordingBlasLt& owner_;
  const cuda::MatrixProductSpec spec_;
  const size_t bytes_;
};

RecordingBlasLt& RecordingBlasLt::Get() {
  static auto* const library = new RecordingBlasLt();
  return *library;
}

absl::StatusOr<std::unique_ptr<cuda::PreparedProduct>> RecordingBlasLt::Prepare(
    const cuda::MatrixProductSpec& spec) {
  WEFT_RETURN_IF_ERROR(cuda::CheckProduct(spec));
  MutexLock lock(mutex_);
  if (refuses_bias_ && spec.has_bias) return absl::UnimplementedError("no product with a bias");
  if (refuses_epilogues_ && spec.epilogue != cuda::ProductEpilogue::kNone) {
    return absl::UnimplementedError("no product with an epilogue");
  }
  return std::make_unique<RecordedProduct>(*this, spec);
}

std::vector<RecordingBlasLt::Call> RecordingBlasLt::TakeCalls() {
  MutexLock lock(mutex_);
  return std::exchange(calls_, {});
}

void RecordingBlasLt::RefuseBias(bool refuses) {
  MutexLock lock(mutex_);
  refuses_bias_ = refuses;
}

void RecordingBlasLt::RefuseEpilogues(bool refuses) {
  MutexLock lock(mutex_);
  refuses_epilogues_ = refuses;
}

void RecordingBlasLt::Record(const Call& call) {
  MutexLock lock(mutex_);
  calls_.push_back(call);
}

}  // namespace weft::testing
