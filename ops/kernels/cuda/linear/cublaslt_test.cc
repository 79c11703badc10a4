// What cublaslt.cc says to the library, held against the library's documentation: functions of our
// own in place of the library's compute what the descriptions mean, column by column, on the host.
#include "ops/kernels/cuda/linear/cublaslt.h"

#include <cublasLt.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "ops/kernels/cuda/linear/testing/direct_cublaslt.h"

namespace weft::cuda {
namespace {

// In the numbers of epilogues: they have a bias, or an auxiliary matrix.
constexpr uint32_t kBiasPart = CUBLASLT_EPILOGUE_BIAS;
constexpr uint32_t kAuxPart = 128;

// ---- The library's objects. A real handle is a pointer to one of these here.

struct FakeLayout {
  cudaDataType_t type;
  uint64_t rows, columns;
  int64_t leading;
  int32_t batches = 1;
  int64_t stride = 0;
};

struct FakeOperation {
  cublasComputeType_t compute;
  cudaDataType_t scale;
  int32_t trans_a = CUBLAS_OP_N, trans_b = CUBLAS_OP_N;
  uint32_t epilogue = CUBLASLT_EPILOGUE_DEFAULT;
  int32_t bias_type = -1;
  void* bias = nullptr;  // or sums
  void* aux = nullptr;
  int64_t aux_leading = 0;
  int64_t aux_stride = 0;
  bool Has(uint32_t part) const { return (epilogue & part) == part; }
};

struct FakePreference {
  uint64_t workspace = 0;
  uint32_t reductions = CUBLASLT_REDUCTION_SCHEME_MASK;
  std::map<int, uint32_t> alignments;
};

// What the functions saw, and what they answer. Reset by each test.
struct FakeLibrary {
  int alive = 0;  // objects that are not destroyed
  cublasStatus_t heuristic_status = CUBLAS_STATUS_SUCCESS;
  cublasStatus_t create_status = CUBLAS_STATUS_SUCCESS;
  int bad_results = 0;  // results before the first good one
  size_t workspace_bytes = 0;
  FakePreference preference;
  FakeOperation asked;      // what the last algorithm was chosen for
  FakeOperation operation;  // of the last product
  size_t workspace_of_matmul = 0;
  cudaStream_t stream = nullptr;
  std::string error;
};
FakeLibrary* fake = nullptr;

cublasStatus_t Create(cublasLtHandle_t* handle) {
  if (fake->create_status != CUBLAS_STATUS_SUCCESS) return fake->create_status;
  *handle = reinterpret_cast<cublasLtHandle_t>(fake);
  ++fake->alive;
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t Destroy(cublasLtHandle_t) {
  --fake->alive;
  return CUBLAS_STATUS_SUCCESS;
}
const char* StatusText(cublasStatus_t) { return "a status"; }

template <typename Handle, typename Object>
cublasStatus_t Give(Handle* handle, const Object& object) {
  *handle = reinterpret_cast<Handle>(new Object(object));
  ++fake->alive;
  return CUBLAS_STATUS_SUCCESS;
}
template <typename Object, typename Handle>
cublasStatus_t Take(Handle handle) {
  delete reinterpret_cast<Object*>(handle);
  --fake->alive;
  return CUBLAS_STATUS_SUCCESS;
}
template <typename T>
cublasStatus_t Set(T& field, const void* value, size_t bytes) {
  if (bytes != sizeof(T)) return CUBLAS_STATUS_INVALID_VALUE;
  std::memcpy(&field, value, bytes);
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t CreateLayout(cublasLtMatrixLayout_t* layout, cudaDataType type, uint64_t rows,
                            uint64_t columns, int64_t leading) {
  if (leading < static_cast<int64_t>(rows)) return CUBLAS_STATUS_INVALID_VALUE;
  return Give(layout, FakeLayout{type, rows, columns, leading});
}
cublasStatus_t DestroyLayout(cublasLtMatrixLayout_t layout) { return Take<FakeLayout>(layout); }
cublasStatus_t SetLayout(cublasLtMatrixLayout_t layout, cublasLtMatrixLayoutAttribute_t attribute,
                         const void* value, size_t bytes) {
  auto* of = reinterpret_cast<FakeLayout*>(layout);
  if (attribute == CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT) return Set(of->batches, value, bytes);
  if (attribute == CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET) {
    return Set(of->stride, value, bytes);
  }
  return CUBLAS_STATUS_INVALID_VALUE;
}

cublasStatus_t CreateOperation(cublasLtMatmulDesc_t* operation, cublasComputeType_t compute,
                               cudaDataType_t scale) {
  return Give(operation, FakeOperation{compute, scale});
}
cublasStatus_t DestroyOperation(cublasLtMatmulDesc_t operation) {
  return Take<FakeOperation>(operation);
}
cublasStatus_t SetOperation(cublasLtMatmulDesc_t operation,
                            cublasLtMatmulDescAttributes_t attribute, const void* value,
                            size_t bytes) {
  auto* of = reinterpret_cast<FakeOperation*>(operation);
  switch (attribute) {
    case CUBLASLT_MATMUL_DESC_TRANSA:
      return Set(of->trans_a, value, bytes);
    case CUBLASLT_MATMUL_DESC_TRANSB:
      return Set(of->trans_b, value, bytes);
    case CUBLASLT_MATMUL_DESC_EPILOGUE:
      return Set(of->epilogue, value, bytes);
    case CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE:
      return Set(of->bias_type, value, bytes);
    case CUBLASLT_MATMUL_DESC_BIAS_POINTER:
      return Set(of->bias, value, bytes);
    case CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER:
      return Set(of->aux, value, bytes);
    case CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD:
      return Set(of->aux_leading, value, bytes);
    case CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_BATCH_STRIDE:
      return Set(of->aux_stride, value, bytes);
    default:
      return CUBLAS_STATUS_INVALID_VALUE;
  }
}

cublasStatus_t CreatePreference(cublasLtMatmulPreference_t* preference) {
  return Give(preference, FakePreference());
}
cublasStatus_t DestroyPreference(cublasLtMatmulPreference_t preference) {
  return Take<FakePreference>(preference);
}
cublasStatus_t SetPreference(cublasLtMatmulPreference_t preference,
                             cublasLtMatmulPreferenceAttributes_t attribute, const void* value,
                             size_t bytes) {
  auto* of = reinterpret_cast<FakePreference*>(preference);
  if (attribute == CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES) {
    return Set(of->workspace, value, bytes);
  }
  if (attribute == CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK) {
    return Set(of->reductions, value, bytes);
  }
  return Set(of->alignments[attribute], value, bytes);
}

// What the library's documentation demands of an epilogue.
cublasStatus_t CheckEpilogue(const FakeOperation& op, const FakeLayout& d) {
  const bool has_aux = (op.epilogue & kAuxPart) != 0;
  const bool fits = !has_aux || (op.aux != nullptr && op.aux_leading % 8 == 0 &&
                                 op.aux_leading >= static_cast<int64_t>(d.rows) &&
                                 op.aux_stride % 8 == 0 && (d.batches > 1) == (op.aux_stride > 0));
  const bool sums_fit = (op.epilogue != CUBLASLT_EPILOGUE_BGRADA || op.trans_a == CUBLAS_OP_N) &&
                        (op.epilogue != CUBLASLT_EPILOGUE_BGRADB || op.trans_b == CUBLAS_OP_T);
  return fits && sums_fit ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_NOT_SUPPORTED;
}

// Sizes that do not fit each other are an error, as of the library.
cublasStatus_t CheckShapes(const FakeOperation& op, const FakeLayout& a, const FakeLayout& b,
                           const FakeLayout& d) {
  const uint64_t m = op.trans_a == CUBLAS_OP_T ? a.columns : a.rows;
  const uint64_t k = op.trans_a == CUBLAS_OP_T ? a.rows : a.columns;
  const uint64_t k_b = op.trans_b == CUBLAS_OP_T ? b.columns : b.rows;
  const uint64_t n = op.trans_b == CUBLAS_OP_T ? b.rows : b.columns;
  const bool fits = k == k_b && m == d.rows && n == d.columns && a.batches == d.batches &&
                    b.batches == d.batches && a.type == b.type;
  return fits ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_INVALID_VALUE;
}

cublasStatus_t Heuristic(cublasLtHandle_t, cublasLtMatmulDesc_t operation, cublasLtMatrixLayout_t a,
                         cublasLtMatrixLayout_t b, cublasLtMatrixLayout_t c,
                         cublasLtMatrixLayout_t d, cublasLtMatmulPreference_t preference,
                         int wanted, cublasLtMatmulHeuristicResult_t results[], int* found) {
  fake->preference = *reinterpret_cast<FakePreference*>(preference);
  if (fake->heuristic_status != CUBLAS_STATUS_SUCCESS) return fake->heuristic_status;
  if (c != d) return CUBLAS_STATUS_INVALID_VALUE;
  fake->asked = *reinterpret_cast<FakeOperation*>(operation);
  *found = std::min(wanted, fake->bad_results + 1);
  for (int i = 0; i < *found; ++i) {
    results[i].state = i < fake->bad_results ? CUBLAS_STATUS_NOT_SUPPORTED : CUBLAS_STATUS_SUCCESS;
    results[i].workspaceSize = fake->workspace_bytes;
    results[i].algo.data[0] = 1000 + static_cast<uint64_t>(i);
  }
  const auto& of_d = *reinterpret_cast<FakeLayout*>(d);
  if (const auto status = CheckEpilogue(fake->asked, of_d); status != CUBLAS_STATUS_SUCCESS) {
    return status;
  }
  return CheckShapes(*reinterpret_cast<FakeOperation*>(operation),
                     *reinterpret_cast<FakeLayout*>(a), *reinterpret_cast<FakeLayout*>(b),
                     *reinterpret_cast<FakeLayout*>(d));
}

// Exact on small whole numbers: how each epilogue is told from the others is what counts here.
template <typename T>
T GeluOf(T x) {
  return 3 * x + 1;
}
template <typename T>
T SlopeOf(T x) {
  return x - 2;
}

// Sums of rows of the first operand, or columns of the second, where these are asked for.
template <typename T>
void ComputeSums(const FakeOperation& op, const FakeLayout& a, const FakeLayout& b, const T* a_data,
                 const T* b_data) {
  const bool of_a = op.epilogue == CUBLASLT_EPILOGUE_BGRADA;
  if (!of_a && op.epilogue != CUBLASLT_EPILOGUE_BGRADB) return;
  const FakeLayout& layout = of_a ? a : b;  // not transposed, and transposed
  for (uint64_t i = 0; i < layout.rows; ++i) {
    T sum = 0;
    for (uint64_t l = 0; l < layout.columns; ++l) {
      sum += (of_a ? a_data
                   : b_data)[static_cast<int64_t>(l) * layout.leading + static_cast<int64_t>(i)];
    }
    static_cast<T*>(op.bias)[i] = sum;
  }
}

template <typename T>
void Compute(const FakeOperation& op, const FakeLayout& a, const FakeLayout& b, const FakeLayout& d,
             const T* a_data, const T* b_data, const T* c_data, T* d_data, T alpha, T beta) {
  ComputeSums(op, a, b, a_data, b_data);
  const uint64_t inner = op.trans_a == CUBLAS_OP_T ? a.rows : a.columns;
  for (int32_t batch = 0; batch < d.batches; ++batch) {
    for (uint64_t i = 0; i < d.rows; ++i) {
      for (uint64_t j = 0; j < d.columns; ++j) {
        T sum = 0;
        for (uint64_t l = 0; l < inner; ++l) {
          const auto column_a = static_cast<int64_t>(op.trans_a == CUBLAS_OP_T ? i : l);
          const auto row_a = static_cast<int64_t>(op.trans_a == CUBLAS_OP_T ? l : i);
          const auto column_b = static_cast<int64_t>(op.trans_b == CUBLAS_OP_T ? l : j);
          const auto row_b = static_cast<int64_t>(op.trans_b == CUBLAS_OP_T ? j : l);
          sum += a_data[batch * a.stride + column_a * a.leading + row_a] *
                 b_data[batch * b.stride + column_b * b.leading + row_b];
        }
        const int64_t place =
            batch * d.stride + static_cast<int64_t>(j) * d.leading + static_cast<int64_t>(i);
        T result = alpha * sum;
        if (beta != 0) result += beta * c_data[place];
        if (op.Has(kBiasPart)) result += static_cast<const T*>(op.bias)[i];
        T* const aux = op.Has(kAuxPart)
                           ? static_cast<T*>(op.aux) + batch * op.aux_stride +
                                 static_cast<int64_t>(j) * op.aux_leading + static_cast<int64_t>(i)
                           : nullptr;
        if (op.Has(CUBLASLT_EPILOGUE_DGELU)) {
          result *= SlopeOf(*aux);
        } else if (op.Has(CUBLASLT_EPILOGUE_GELU)) {
          if (aux != nullptr) *aux = result;
          result = GeluOf(result);
        }
        d_data[place] = result;
      }
    }
  }
}

cublasStatus_t Matmul(cublasLtHandle_t, cublasLtMatmulDesc_t operation, const void* alpha,
                      const void* a, cublasLtMatrixLayout_t a_layout, const void* b,
                      cublasLtMatrixLayout_t b_layout, const void* beta, const void* c,
                      cublasLtMatrixLayout_t, void* d, cublasLtMatrixLayout_t d_layout,
                      const cublasLtMatmulAlgo_t* algorithm, void* workspace,
                      size_t workspace_bytes, cudaStream_t stream) {
  // So does the library, on an H200.
  if (reinterpret_cast<uintptr_t>(workspace) % 256 != 0) return CUBLAS_STATUS_INVALID_VALUE;
  if (algorithm->data[0] != 1000 + static_cast<uint64_t>(fake->bad_results)) {
    return CUBLAS_STATUS_INVALID_VALUE;
  }
  fake->operation = *reinterpret_cast<FakeOperation*>(operation);
  fake->workspace_of_matmul = workspace_bytes;
  fake->stream = stream;
  const auto& of_a = *reinterpret_cast<FakeLayout*>(a_layout);
  const auto& of_b = *reinterpret_cast<FakeLayout*>(b_layout);
  const auto& of_d = *reinterpret_cast<FakeLayout*>(d_layout);
  if (fake->operation.scale == CUDA_R_64F) {
    Compute(fake->operation, of_a, of_b, of_d, static_cast<const double*>(a),
            static_cast<const double*>(b), static_cast<const double*>(c), static_cast<double*>(d),
            *static_cast<const double*>(alpha), *static_cast<const double*>(beta));
  } else {
    Compute(fake->operation, of_a, of_b, of_d, static_cast<const float*>(a),
            static_cast<const float*>(b), static_cast<const float*>(c), static_cast<float*>(d),
            *static_cast<const float*>(alpha), *static_cast<const float*>(beta));
  }
  return CUBLAS_STATUS_SUCCESS;
}

template <typename Function>
void* Address(Function* function) {
  return reinterpret_cast<void*>(function);
}

absl::StatusOr<void*> Symbol(const char* name) {
  static const std::map<std::string, void*> functions = {
      {"cublasLtCreate", Address(Create)},
      {"cublasLtDestroy", Address(Destroy)},
      {"cublasLtGetStatusString", Address(StatusText)},
      {"cublasLtMatmul", Address(Matmul)},
      {"cublasLtMatmulAlgoGetHeuristic", Address(Heuristic)},
      {"cublasLtMatrixLayoutCreate", Address(CreateLayout)},
      {"cublasLtMatrixLayoutDestroy", Address(DestroyLayout)},
      {"cublasLtMatrixLayoutSetAttribute", Address(SetLayout)},
      {"cublasLtMatmulDescCreate", Address(CreateOperation)},
      {"cublasLtMatmulDescDestroy", Address(DestroyOperation)},
      {"cublasLtMatmulDescSetAttribute", Address(SetOperation)},
      {"cublasLtMatmulPreferenceCreate", Address(CreatePreference)},
      {"cublasLtMatmulPreferenceDestroy", Address(DestroyPreference)},
      {"cublasLtMatmulPreferenceSetAttribute", Address(SetPreference)}};
  const auto found = functions.find(name);
  if (found != functions.end()) return found->second;
  return absl::NotFoundError(absl::StrCat("no function ", name));
}

// ---- Tests.

class CublasLtTest : public ::testing::Test {
 protected:
  void SetUp() override { fake = &library_; }
  void TearDown() override { fake = nullptr; }

  // Y by the library, and by row-major sums, agree.
  template <typename T>
  void ExpectProduct(MatrixProductSpec spec) {
    const auto library = OpenCublasLt(Symbol);
    ASSERT_TRUE(library.ok()) << library.status();
    const auto product = (*library)->Prepare(spec);
    ASSERT_TRUE(product.ok()) << product.status();
    const auto values = [](int64_t count, int seed) {
      std::vector<T> result;
      for (int64_t i = 0; i < count; ++i) result.push_back(static_cast<T>((i * 7 + seed) % 11 - 5));
      return result;
    };
    const auto a = values(1000, 1), b = values(1000, 2), bias = values(100, 3);
    std::vector<T> y = values(1000, 4);
    const std::vector<T> c = y;
    std::vector<T> aux = values(1000, 5), sums(100, T{-77});
    const std::vector<T> operand = aux;
    ProductOperands operands = {a.data(), b.data(), nullptr, y.data(),
                                spec.has_bias ? bias.data() : nullptr};
    if (spec.has_aux) operands.aux = aux.data();
    if (spec.sums != SummedOperand::kNone) operands.sums = sums.data();
    auto* const stream = reinterpret_cast<void*>(uintptr_t{0x51});
    void* const workspace = reinterpret_cast<void*>(0x1040);  // as an arena aligns it
    ASSERT_TRUE((*product)->Multiply(operands, workspace, LaunchQueue{stream}).ok());
    EXPECT_EQ(library_.stream, static_cast<cudaStream_t>(stream));
    for (int64_t batch = 0; batch < spec.batches; ++batch) {
      for (int64_t i = 0; i < spec.m; ++i) {
        for (int64_t j = 0; j < spec.n; ++j) {
          T sum = 0;
          for (int64_t l = 0; l < spec.k; ++l) {
            const int64_t in_a = spec.trans_a ? l * spec.a_row + i : i * spec.a_row + l;
            const int64_t in_b = spec.trans_b ? j * spec.b_row + l : l * spec.b_row + j;
            sum += a[batch * spec.a_batch + in_a] * b[batch * spec.b_batch + in_b];
          }
          const int64_t place = batch * spec.y_batch + i * spec.y_row + j;
          T expected = static_cast<T>(spec.alpha) * sum + static_cast<T>(spec.beta) * c[place];
          if (spec.has_bias) expected += bias[j];
          if (spec.epilogue == ProductEpilogue::kTanhGelu) {
            EXPECT_TRUE(!spec.has_aux || aux[place] == expected) << i << " " << j;
            expected = GeluOf(expected);
          }
          if (spec.epilogue == ProductEpilogue::kTanhGeluGrad) expected *= SlopeOf(operand[place]);
          EXPECT_EQ(y[place], expected) << batch << " " << i << " " << j;
        }
      }
    }
  }

  // What is added up beside the product.
  static std::vector<float> RowSums(const std::vector<float>& values, int64_t rows, int64_t row,
                                    int64_t columns) {
    std::vector<float> sums(static_cast<size_t>(columns));
    for (int64_t i = 0; i < rows; ++i) {
      for (int64_t j = 0; j < columns; ++j) sums[j] += values[i * row + j];
    }
    return sums;
  }

  FakeLibrary library_;
};

MatrixProductSpec Spec(bool trans_a, bool trans_b, DType dtype = DType::kFloat32) {
  MatrixProductSpec spec;
  spec.dtype = spec.y_dtype = dtype;
  spec.m = 3;
  spec.n = 5;
  spec.k = 4;
  spec.trans_a = trans_a;
  spec.trans_b = trans_b;
  spec.a_row = 7;
  spec.b_row = 8;
  spec.y_row = 6;
  return spec;
}

TEST_F(CublasLtTest, ExchangesOperandsForAllTranspositions) {
  for (const bool trans_a : {false, true}) {
    for (const bool trans_b : {false, true}) {
      ExpectProduct<float>(Spec(trans_a, trans_b));
      ExpectProduct<double>(Spec(trans_a, trans_b, DType::kFloat64));
    }
  }
  EXPECT_EQ(library_.alive, 0) << "everything that was made is destroyed";
}

TEST_F(CublasLtTest, DescribesBatchesScalesAndBias) {
  MatrixProductSpec spec = Spec(false, true);
  spec.batches = 3;
  spec.a_batch = 30;
  spec.b_batch = 0;
  spec.y_batch = 20;
  spec.alpha = 2;
  spec.beta = -1;
  ExpectProduct<float>(spec);
  spec.has_bias = true;
  ExpectProduct<float>(spec);
  EXPECT_EQ(library_.operation.bias_type, CUDA_R_32F);
}

TEST_F(CublasLtTest, DescribesEachEpilogue) {
  struct Case {
    ProductEpilogue epilogue;
    bool has_bias, has_aux;
    uint32_t expected;
  };
  for (const Case& c :
       {Case{ProductEpilogue::kTanhGelu, false, false, CUBLASLT_EPILOGUE_GELU},
        Case{ProductEpilogue::kTanhGelu, true, false, CUBLASLT_EPILOGUE_GELU_BIAS},
        Case{ProductEpilogue::kTanhGelu, false, true, CUBLASLT_EPILOGUE_GELU_AUX},
        Case{ProductEpilogue::kTanhGelu, true, true, CUBLASLT_EPILOGUE_GELU_AUX_BIAS},
        Case{ProductEpilogue::kTanhGeluGrad, false, true, CUBLASLT_EPILOGUE_DGELU}}) {
    for (const int64_t batches : {1, 3}) {
      MatrixProductSpec spec = Spec(false, true);
      spec.batches = batches;
      spec.a_batch = 30;
      spec.y_batch = 24;
      spec.y_row = 8;
      spec.y_alignment = 32;
      spec.epilogue = c.epilogue;
      spec.has_bias = c.has_bias;
      spec.has_aux = c.has_aux;
      ExpectProduct<float>(spec);
      EXPECT_EQ(library_.operation.epilogue, c.expected);
      EXPECT_EQ(library_.operation.aux_leading, c.has_aux ? 8 : 0);
      // The address that an algorithm is chosen with is as aligned as those that follow.
      EXPECT_EQ(reinterpret_cast<uintptr_t>(library_.asked.aux), c.has_aux ? 32u : 0u);
    }
  }
  EXPECT_EQ(library_.alive, 0) << "everything that was made is destroyed";
}

// Our A is the library's second operand.
TEST_F(CublasLtTest, DescribesSumsOfAnOperand) {
  const auto library = OpenCublasLt(Symbol);
  ASSERT_TRUE(library.ok()) << library.status();
  std::vector<float> a(100), b(100);
  for (size_t i = 0; i < a.size(); ++i) {
    a[i] = static_cast<float>(i % 7);
    b[i] = static_cast<float>(i % 5);
  }
  for (const SummedOperand summed : {SummedOperand::kA, SummedOperand::kB}) {
    MatrixProductSpec spec = Spec(/*trans_a=*/true, /*trans_b=*/false);
    spec.sums = summed;
    ExpectProduct<float>(spec);
    const auto product = (*library)->Prepare(spec);
    ASSERT_TRUE(product.ok()) << product.status();
    std::vector<float> y(100), sums(8, -77);
    ProductOperands operands = {a.data(), b.data(), nullptr, y.data()};
    operands.sums = sums.data();
    ASSERT_TRUE(
        (*product)->Multiply(operands, nullptr, LaunchQueue{reinterpret_cast<void*>(0x51)}).ok());
    const bool of_a = summed == SummedOperand::kA;
    std::vector<float> expected =
        of_a ? RowSums(a, spec.k, spec.a_row, spec.m) : RowSums(b, spec.k, spec.b_row, spec.n);
    expected.resize(8, -77);  // nothing behind them is written
    EXPECT_EQ(sums, expected);
    EXPECT_EQ(library_.operation.epilogue,
              of_a ? CUBLASLT_EPILOGUE_BGRADB : CUBLASLT_EPILOGUE_BGRADA);
    EXPECT_EQ(library_.operation.bias_type, CUDA_R_32F);
  }
}

TEST_F(CublasLtTest, SaysAlignmentsWorkspaceAndReductions) {
  library_.workspace_bytes = 4096;
  library_.bad_results = 2;
  MatrixProductSpec spec = Spec(false, false);
  spec.a_alignment = 4;
  spec.b_alignment = 16;
  spec.y_alignment = 32;
  ExpectProduct<float>(spec);
  const FakePreference& preference = library_.preference;
  EXPECT_EQ(preference.workspace, 32 << 20);
  EXPECT_EQ(preference.reductions, CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE);
  EXPECT_EQ(preference.alignments.at(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES), 16);
  EXPECT_EQ(preference.alignments.at(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES), 4);
  EXPECT_EQ(preference.alignments.at(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES), 32);
  EXPECT_EQ(preference.alignments.at(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES), 32);
  EXPECT_EQ(library_.workspace_of_matmul, 4096);
}

TEST_F(CublasLtTest, ComputesInFloat32UnlessTf32IsAsked) {
  ExpectProduct<float>(Spec(false, false));
  EXPECT_EQ(library_.operation.compute, CUBLAS_COMPUTE_32F);
  MatrixProductSpec spec = Spec(false, false);
  spec.tf32 = true;
  ExpectProduct<float>(spec);
  EXPECT_EQ(library_.operation.compute, CUBLAS_COMPUTE_32F_FAST_TF32);
  ExpectProduct<double>(Spec(false, false, DType::kFloat64));
  EXPECT_EQ(library_.operation.compute, CUBLAS_COMPUTE_64F);
}

TEST_F(CublasLtTest, RefusesWhatTheLibraryHasNoAlgorithmFor) {
  const auto library = OpenCublasLt(Symbol);
  ASSERT_TRUE(library.ok());
  library_.heuristic_status = CUBLAS_STATUS_NOT_SUPPORTED;
  EXPECT_TRUE(absl::IsUnimplemented((*library)->Prepare(Spec(false, false)).status()));
  library_.heuristic_status = CUBLAS_STATUS_SUCCESS;
  library_.workspace_bytes = size_t{64} << 20;
  EXPECT_TRUE(absl::IsUnimplemented((*library)->Prepare(Spec(false, false)).status()));
  library_.heuristic_status = CUBLAS_STATUS_NOT_INITIALIZED;
  const absl::Status status = (*library)->Prepare(Spec(false, false)).status();
  EXPECT_TRUE(absl::IsInternal(status));
  EXPECT_TRUE(absl::StrContains(status.message(), "a status (1)")) << status;
}

// The yardstick of gpu_benchmark.
TEST_F(CublasLtTest, CalledDirectlyTheLibraryComputesRowMajorProducts) {
  library_.bad_results = 2;
  library_.workspace_bytes = 512;
  auto direct = testing::DirectCublasLt::Open(Symbol);
  ASSERT_TRUE(direct.ok()) << direct.status();
  constexpr int64_t kM = 3, kN = 5, kK = 4;
  for (const bool tf32 : {false, true}) {
    const auto algorithms = (*direct)->Choose({DType::kFloat32, tf32, kM, kN, kK});
    ASSERT_TRUE(algorithms.ok()) << algorithms.status();
    EXPECT_EQ(*algorithms, 1) << "those that work";
    EXPECT_EQ(library_.preference.reductions, CUBLASLT_REDUCTION_SCHEME_MASK) << "any";
    EXPECT_EQ((*direct)->workspace_bytes(), 512u);
    std::vector<float> a(kM * kK), b(kK * kN), y(kM * kN, -1);
    for (size_t i = 0; i < a.size(); ++i) a[i] = static_cast<float>(i % 7);
    for (size_t i = 0; i < b.size(); ++i) b[i] = static_cast<float>(i % 5);
    ASSERT_TRUE((*direct)
                    ->Multiply(0, a.data(), b.data(), y.data(), reinterpret_cast<void*>(0x1000),
                               reinterpret_cast<void*>(0x51))
                    .ok());
    for (int64_t i = 0; i < kM; ++i) {
      for (int64_t j = 0; j < kN; ++j) {
        float sum = 0;
        for (int64_t l = 0; l < kK; ++l) sum += a[i * kK + l] * b[l * kN + j];
        EXPECT_EQ(y[i * kN + j], sum) << i << " " << j;
      }
    }
    EXPECT_EQ(library_.operation.compute, tf32 ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F);
    EXPECT_EQ(library_.workspace_of_matmul, 512u);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(library_.stream), 0x51u);
  }
  library_.heuristic_status = CUBLAS_STATUS_NOT_SUPPORTED;
  EXPECT_FALSE((*direct)->Choose({DType::kFloat32, false, kM, kN, kK}).ok());
  direct->reset();
  EXPECT_EQ(library_.alive, 0) << "everything that was made is destroyed";
}

TEST_F(CublasLtTest, SaysWhyItCannotBeOpened) {
  library_.create_status = CUBLAS_STATUS_NOT_INITIALIZED;
  EXPECT_TRUE(absl::IsInternal(OpenCublasLt(Symbol).status()));
  const auto nothing = [](const char* name) -> absl::StatusOr<void*> {
    return absl::NotFoundError(absl::StrCat("libcublasLt.so.13 has no ", name));
  };
  EXPECT_EQ(OpenCublasLt(nothing).status().message(), "libcublasLt.so.13 has no cublasLtCreate");
  CublasLtOptions options;
  options.make_current = [] { return absl::UnavailableError("the card is gone"); };
  EXPECT_TRUE(absl::IsUnavailable(OpenCublasLt(Symbol, options).status()));
}

}  // namespace
}  // namespace weft::cuda
