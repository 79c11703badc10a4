#include "ops/kernels/cpu/blocks/matrix_product.h"

#include <algorithm>
#include <type_traits>
#include <utility>
#include <vector>

#include "ops/kernels/cpu/blocks/onednn.h"
#include "ops/kernels/cpu/blocks/operand.h"
#include "ops/kernels/cpu/blocks/packed_product.h"
#include "ops/kernels/cpu/blocks/parallel.h"
#include "ops/kernels/cpu/blocks/widened.h"
#include "ops/kernels/cpu/blocks/workspace.h"
#include "platform/cpu_info.h"
#include "platform/status_macros.h"

namespace weft::cpu {
namespace {

using Desc = dnnl::memory::desc;

// ---- Plain loops.

// The type in which products of T are summed: unsigned for integers, whose overflow wraps.
template <typename T, typename = void>
struct SumTypeOf {
  using Type = ComputeType<T>;
};
template <typename T>
struct SumTypeOf<T, std::enable_if_t<std::is_integral_v<T>>> {
  using Type = std::make_unsigned_t<T>;
};

// The offsets of A's and B's matrices for each matrix of Y.
struct BatchOffsets {
  std::vector<int64_t> a;
  std::vector<int64_t> b;
};

BatchOffsets OffsetsOf(const MatrixProduct& product) {
  const Shape batch = product.batch();
  BatchOffsets offsets;
  const auto offset_in = [&](const Shape& own, int64_t flat, int64_t matrix) {
    int64_t offset = 0;
    int64_t stride = matrix;
    for (int d = batch.rank() - 1; d >= 0; --d) {
      if (own.dim(d) != 1) offset += (flat % batch.dim(d)) * stride;
      flat /= batch.dim(d);
      stride *= own.dim(d);
    }
    return offset;
  };
  for (int64_t i = 0; i < batch.num_elements(); ++i) {
    offsets.a.push_back(offset_in(product.a_batch, i, product.m * product.k));
    offsets.b.push_back(offset_in(product.b_batch, i, product.k * product.n));
  }
  return offsets;
}

template <typename T>
class LoopProduct final : public Kernel {
 public:
  LoopProduct(const PrepareContext& context, const MatrixProduct& product)
      : product_(product), offsets_(OffsetsOf(product)), threads_(context.threads()) {}

  absl::Status Run(const KernelContext& context) override {
    const int64_t rows = product_.m * static_cast<int64_t>(offsets_.a.size());
    const double row_nanoseconds = 0.5 * static_cast<double>(product_.n * (product_.k + 1));
    ParallelFor(threads_, rows, row_nanoseconds, 1, [&](int64_t begin, int64_t end) {
      for (int64_t row = begin; row < end; ++row) ComputeRow(context, row);
    });
    return absl::OkStatus();
  }

 private:
  using Sum = typename SumTypeOf<T>::Type;
  static constexpr int64_t kColumns = 64;

  void ComputeRow(const KernelContext& context, int64_t row) const {
    const int64_t matrix = row / product_.m;
    const int64_t i = row % product_.m;
    const T* a =
        Input<T>(context, 0) + offsets_.a[matrix] + i * (product_.trans_a ? 1 : product_.k);
    const T* b = Input<T>(context, 1) + offsets_.b[matrix];
    const T* c = product_.has_c ? Input<T>(context, 2) + i * product_.c_row_stride : nullptr;
    T* y = Output<T>(context, 0) + row * product_.n;
    for (int64_t begin = 0; begin < product_.n; begin += kColumns) {
      const int64_t count = std::min(kColumns, product_.n - begin);
      Sum sums[kColumns] = {};
      SumColumns(a, b, begin, count, sums);
      for (int64_t j = 0; j < count; ++j) {
        y[begin + j] =
            Finish(sums[j], c == nullptr ? nullptr : c + (begin + j) * product_.c_column_stride);
      }
    }
  }

  void SumColumns(const T* a, const T* b, int64_t begin, int64_t count, Sum* sums) const {
    const int64_t a_stride = product_.trans_a ? product_.m : 1;
    const int64_t row_stride = product_.trans_b ? 1 : product_.n;
    const int64_t column_stride = product_.trans_b ? product_.k : 1;
    for (int64_t k = 0; k < product_.k; ++k) {
      const Sum factor = static_cast<Sum>(Load(a[k * a_stride]));
      const T* b_row = b + k * row_stride + begin * column_stride;
      for (int64_t j = 0; j < count; ++j) {
        sums[j] += factor * static_cast<Sum>(Load(b_row[j * column_stride]));
      }
    }
  }

  T Finish(Sum sum, const T* c) const {
    auto value = static_cast<ComputeType<T>>(sum);
    if (product_.alpha != 1.0f) value = static_cast<ComputeType<T>>(product_.alpha * value);
    if (c != nullptr) {
      const ComputeType<T> addend = Load(*c);
      value = static_cast<ComputeType<T>>(
          static_cast<Sum>(value) +
          static_cast<Sum>(product_.beta == 1.0f
                               ? addend
                               : static_cast<ComputeType<T>>(product_.beta * addend)));
    }
    return Store<T>(value);
  }

  const MatrixProduct product_;
  const BatchOffsets offsets_;
  const int threads_;
};

// ---- oneDNN.

// How C enters: not at all, as the primitive's bias, or by being in Y before the product is added.
enum class BiasMode : uint8_t { kNone, kFused, kPrefilled };

BiasMode BiasModeOf(const MatrixProduct& product) {
  if (!product.has_c) return BiasMode::kNone;
  const bool one_row =
      product.c_row_stride == 0 && (product.c_column_stride == 1 || product.n == 1);
  return one_row && product.alpha == 1.0f && product.beta == 1.0f ? BiasMode::kFused
                                                                  : BiasMode::kPrefilled;
}

// Rows [begin, end) of Y become beta C.
void FillWithC(const KernelContext& context, const MatrixProduct& product, int64_t begin,
               int64_t end) {
  const float* c = Input<float>(context, 2);
  float* y = Output<float>(context, 0);
  for (int64_t i = begin; i < end; ++i) {
    for (int64_t j = 0; j < product.n; ++j) {
      y[i * product.n + j] =
          product.beta * c[i * product.c_row_stride + j * product.c_column_stride];
    }
  }
}

// A matrix operand, of which the last two axes are [rows, columns] whatever its storage order.
Desc MatrixDesc(dnnl::memory::data_type type, const Shape& batch, int64_t rows, int64_t columns,
                bool transposed) {
  Shape shape = batch;
  shape.AddDim(rows);
  shape.AddDim(columns);
  auto strides = shape.Strides();
  if (transposed) {
    strides[shape.rank() - 2] = 1;
    strides[shape.rank() - 1] = rows;
  }
  return Desc(ToDims(shape), type, dnnl::memory::dims(strides.begin(), strides.end()));
}

// How the work is shared: in one piece by oneDNN, or Y is cut along an axis, and threads take piece
// after piece, each computed on one thread. The latter does not wait for a thread that comes late.
struct Cut {
  enum class Axis : uint8_t { kBatch, kRows, kColumns };
  Axis axis = Axis::kRows;
  int64_t size = 0;  // of a piece; the last may be shorter
  int64_t whole = 0;
  double nanoseconds = 0;  // of a piece

  int64_t count() const { return (whole + size - 1) / size; }
  int64_t last() const { return whole - (count() - 1) * size; }
};

// About what the product takes on one thread.
double NanosecondsOf(const MatrixProduct& product) {
  constexpr double kFlopsPerNanosecond = 60;
  constexpr double kBytesPerNanosecond = 15;
  const double b = static_cast<double>(product.b_batch.num_elements() * product.n * product.k);
  const double y = static_cast<double>(product.batch().num_elements() * product.m * product.n);
  return std::max(2 * y * static_cast<double>(product.k) / kFlopsPerNanosecond,
                  4 * b / kBytesPerNanosecond);
}

// `packed`: B is kept in oneDNN's layout.
Cut CutFor(const MatrixProduct& product, DType dtype, int threads, bool packed) {
  constexpr double kPiecesPerThread = 8;
  // Pieces begin on 64 bytes.
  const int64_t line = 64 / static_cast<int64_t>(DTypeBytes(dtype, 1));
  // Each piece brings what it shares with the others into oneDNN's layout anew: that should be
  // little of its work.
  constexpr int64_t kMinUnpacked = 256;
  // Each piece reads all of packed B: with 64 rows 1024 x 768 x 768 takes what it takes in one
  // piece per thread, with 32 a third more.
  const int64_t min_packed = 4 * line;
  Cut cut;
  int64_t grain = packed ? min_packed : kMinUnpacked;
  if (product.batch().rank() > 0) {
    const bool aligned = product.m * product.k % line == 0 && product.k * product.n % line == 0 &&
                         product.m * product.n % line == 0;
    cut.axis = Cut::Axis::kBatch;
    cut.whole = product.batch().dim(0);
    grain = aligned ? 1 : line;
  } else if (product.m >= product.n) {  // pieces share the smaller operand
    cut.whole = product.m;
  } else {
    cut.axis = Cut::Axis::kColumns;
    cut.whole = product.n;
    grain = std::max(grain, 8 * line);
  }
  const double all = NanosecondsOf(product);
  const double pieces = std::min({all / kNanosecondsPerThread, kPiecesPerThread * threads,
                                  static_cast<double>(cut.whole) / static_cast<double>(grain)});
  cut.size = cut.whole;
  if (threads > 1 && pieces >= 2) {
    const int64_t wanted = static_cast<int64_t>(static_cast<double>(cut.whole - 1) / pieces) + 1;
    const int64_t step = std::min(grain, 4 * line);
    cut.size = std::min(cut.whole, (wanted + step - 1) / step * step);
  }
  cut.nanoseconds = all * static_cast<double>(cut.size) / static_cast<double>(cut.whole);
  return cut;
}

// An operand of which a piece has `size` elements of axis `axis`, or all of it where axis is -1 or
// broadcasts.
class PieceOperand {
 public:
  PieceOperand() = default;
  PieceOperand(Desc whole, int axis) : whole_(std::move(whole)), axis_(axis) {
    if (axis_ >= 0 && whole_.dims()[axis_] == 1) axis_ = -1;
  }
  bool is_cut() const { return axis_ >= 0; }
  Desc Of(int64_t size) const {
    if (!is_cut()) return whole_;
    dnnl::memory::dims dims = whole_.dims();
    dims[axis_] = size;
    return whole_.submemory_desc(dims, dnnl::memory::dims(dims.size(), 0));
  }
  // Where the piece from `first` on begins.
  template <typename Pointer>
  Pointer* At(Pointer* data, int64_t first) const {
    if (!is_cut() || data == nullptr) return data;
    using Byte = std::conditional_t<std::is_const_v<Pointer>, const char, char>;
    const int64_t stride = whole_.data.format_desc.blocking.strides[axis_];
    const auto bytes = static_cast<int64_t>(dnnl::memory::data_type_size(whole_.data_type()));
    return static_cast<Byte*>(data) + first * stride * bytes;
  }

 private:
  Desc whole_;
  int axis_ = -1;
};

class OnednnProduct final : public Kernel {
 public:
  // May throw dnnl::error.
  static absl::StatusOr<std::unique_ptr<Kernel>> Create(const PrepareContext& context,
                                                        const MatrixProduct& product) {
    const bool constant = context.InputIsConstant(1);
    auto kernel = std::make_unique<OnednnProduct>(context.InputDType(0), OnednnThreads(context),
                                                  product, constant);
    WEFT_RETURN_IF_ERROR(kernel->Prepare(constant));
    return kernel;
  }

  OnednnProduct(DType dtype, int threads, const MatrixProduct& product, bool constant)
      : product_(product),
        type_(OnednnType(dtype)),
        bias_mode_(BiasModeOf(product)),
        cut_(CutFor(product, dtype, threads, constant)),
        piece_threads_(cut_.count() > 1 ? 1 : threads) {
    lanes_.resize(static_cast<size_t>(std::min<int64_t>(threads, cut_.count())));
  }

  absl::Status Run(const KernelContext& context) override {
    for (size_t i = 0; i < weights_.size(); ++i) {
      const void* plain = b_.At(context.inputs[1], static_cast<int64_t>(i) * cut_.size);
      WEFT_ASSIGN_OR_RETURN(packed_[i], weights_[i].Get(plain));
    }
    if (bias_mode_ == BiasMode::kPrefilled) FillWithC(context, product_, 0, product_.m);
    for (Lane& lane : lanes_) lane.status = absl::OkStatus();
    ParallelForSlots(static_cast<int>(lanes_.size()), cut_.count(),
                     std::max(cut_.nanoseconds, 2 * kNanosecondsPerThread), 1,
                     [&](int slot, int64_t begin, int64_t end) {
                       const ThreadBudget budget(piece_threads_);
                       Lane& lane = lanes_[slot];
                       for (int64_t i = begin; i < end && lane.status.ok(); ++i) {
                         lane.status = RunPiece(context, lane, i);
                       }
                     });
    for (const Lane& lane : lanes_) WEFT_RETURN_IF_ERROR(lane.status);
    return absl::OkStatus();
  }

  size_t workspace_bytes() const override { return layout_.total(); }
  size_t retained_bytes() const override {
    size_t bytes = 0;
    for (const PackedWeights& weights : weights_) bytes += weights.bytes();
    return bytes;
  }

 private:
  // What one thread works with.
  struct Lane {
    OnednnCall full;
    OnednnCall last;
    size_t scratchpad = 0;
    absl::Status status;
  };

  absl::Status Prepare(bool constant) {
    const ThreadBudget budget(piece_threads_);
    const int rank = product_.batch().rank() + 2;
    const int columns = cut_.axis == Cut::Axis::kColumns ? rank - 1 : -1;
    const int rows = cut_.axis == Cut::Axis::kRows ? rank - 2 : -1;
    const int batch = cut_.axis == Cut::Axis::kBatch ? 0 : -1;
    const Desc y = MatrixDesc(type_, product_.batch(), product_.m, product_.n, false);
    a_ = PieceOperand(MatrixDesc(type_, product_.a_batch, product_.m, product_.k, product_.trans_a),
                      std::max(rows, batch));
    b_ = PieceOperand(MatrixDesc(type_, product_.b_batch, product_.k, product_.n, product_.trans_b),
                      std::max(columns, batch));
    y_ = PieceOperand(y, std::max({rows, columns, batch}));
    dnnl::memory::dims bias_dims(y.dims().size(), 1);
    bias_dims.back() = product_.n;
    bias_ =
        PieceOperand(MatrixDesc(type_, Shape{}, 1, product_.n, false).reshape(bias_dims), columns);
    // Weights of a batch that is cut stay as they are: constant ones are rare.
    const bool pack = constant && !(batch >= 0 && b_.is_cut() && cut_.count() > 1);
    return PrepareLanes(pack);
  }

  absl::Status PrepareLanes(bool pack) {
    const auto primitive = Describe(cut_.size, pack ? Any(b_.Of(cut_.size)) : b_.Of(cut_.size));
    // Pieces that share B share its layout.
    const bool shares = pack && !b_.is_cut();
    const auto last = Describe(cut_.last(), shares ? primitive.weights_desc()
                                            : pack ? Any(b_.Of(cut_.last()))
                                                   : b_.Of(cut_.last()));
    const size_t scratchpad =
        std::max(primitive.scratchpad_desc().get_size(), last.scratchpad_desc().get_size());
    for (Lane& lane : lanes_) {
      lane.scratchpad = layout_.Add(scratchpad);
      lane.full = Call(primitive, cut_.size);
      lane.last = Call(last, cut_.last());
    }
    if (!pack) return absl::OkStatus();
    const int64_t parts = shares ? 1 : cut_.count();
    for (int64_t i = 0; i < parts; ++i) {
      const bool is_last = i + 1 == cut_.count();
      const Desc plain = b_.Of(is_last ? cut_.last() : cut_.size);
      const Desc packed = is_last ? last.weights_desc() : primitive.weights_desc();
      WEFT_ASSIGN_OR_RETURN(PackedWeights weights, PackedWeights::Create(plain, packed));
      weights_.push_back(std::move(weights));
    }
    packed_.resize(weights_.size());
    return absl::OkStatus();
  }

  static Desc Any(const Desc& plain) {
    return Desc(plain.dims(), plain.data_type(), dnnl::memory::format_tag::any);
  }

  dnnl::matmul::primitive_desc Describe(int64_t size, const Desc& weights) const {
    dnnl::primitive_attr attributes = UserScratchpad();
    if (product_.alpha != 1.0f) attributes.set_output_scales(0, {product_.alpha});
    if (bias_mode_ == BiasMode::kPrefilled) {
      dnnl::post_ops add;
      add.append_sum(1.0f);
      attributes.set_post_ops(add);
    }
    const dnnl::matmul::desc desc =
        bias_mode_ == BiasMode::kFused
            ? dnnl::matmul::desc(a_.Of(size), weights, bias_.Of(size), y_.Of(size))
            : dnnl::matmul::desc(a_.Of(size), weights, y_.Of(size));
    return dnnl::matmul::primitive_desc(desc, attributes, OnednnEngine());
  }

  OnednnCall Call(const dnnl::matmul::primitive_desc& primitive, int64_t size) const {
    std::vector<OnednnCall::Argument> arguments = {
        {DNNL_ARG_SRC, a_.Of(size)},
        {DNNL_ARG_WEIGHTS, primitive.weights_desc()},
        {DNNL_ARG_DST, y_.Of(size)},
        {DNNL_ARG_SCRATCHPAD, primitive.scratchpad_desc()}};
    if (bias_mode_ == BiasMode::kFused) arguments.push_back({DNNL_ARG_BIAS, bias_.Of(size)});
    return OnednnCall(dnnl::matmul(primitive), arguments);
  }

  absl::Status RunPiece(const KernelContext& context, Lane& lane, int64_t piece) {
    const int64_t first = piece * cut_.size;
    const void* const weights = packed_.empty() ? b_.At(context.inputs[1], first)
                                                : packed_[packed_.size() == 1 ? 0 : piece];
    const void* const a = a_.At(context.inputs[0], first);
    const void* const y = y_.At(context.outputs[0], first);
    const void* const scratchpad = At(context.workspace, lane.scratchpad);
    OnednnCall& call = piece + 1 == cut_.count() ? lane.last : lane.full;
    if (bias_mode_ != BiasMode::kFused) return call.Run({a, weights, y, scratchpad});
    return call.Run({a, weights, y, scratchpad, bias_.At(context.inputs[2], first)});
  }

  const MatrixProduct product_;
  const dnnl::memory::data_type type_;
  const BiasMode bias_mode_;
  const Cut cut_;
  const int piece_threads_;
  PieceOperand a_, b_, y_, bias_;
  WorkspaceLayout layout_;
  std::vector<Lane> lanes_;
  std::vector<PackedWeights> weights_;  // none, one, or one per piece
  std::vector<const void*> packed_;     // of this run
};

// ---- Our own float32.

class PackedKernel final : public Kernel {
 public:
  static absl::StatusOr<std::unique_ptr<Kernel>> Create(const PrepareContext& context,
                                                        const MatrixProduct& product) {
    auto kernel = std::make_unique<PackedKernel>(context, product);
    WEFT_RETURN_IF_ERROR(kernel->Prepare(context.InputIsConstant(1)));
    return kernel;
  }

  PackedKernel(const PrepareContext& context, const MatrixProduct& product)
      : product_(product),
        offsets_(OffsetsOf(product)),
        bias_mode_(BiasModeOf(product)),
        threads_(context.threads()) {
    const int64_t count = matrices();
    nanoseconds_ = NanosecondsOf(product_) / static_cast<double>(count);
    // Threads share the matrices, or each matrix where these are few and large.
    constexpr int64_t kEven = 4;
    const bool is_even = count % threads_ == 0 || count >= kEven * threads_;
    shares_matrices_ = count > 1 && (is_even || nanoseconds_ < 2 * kNanosecondsPerThread);
  }

  absl::Status Run(const KernelContext& context) override {
    if (bias_mode_ == BiasMode::kPrefilled) Prefill(context);
    const auto run = [&](int lane, int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) RunMatrix(context, lanes_[lane], i);
    };
    if (shares_matrices_) {
      ParallelForSlots(threads_, matrices(), nanoseconds_, 1, run);
    } else {
      run(0, 0, matrices());
    }
    return absl::OkStatus();
  }

  size_t workspace_bytes() const override { return layout_.total(); }
  size_t retained_bytes() const override { return lanes_[0].retained_bytes(); }

 private:
  int64_t matrices() const { return static_cast<int64_t>(offsets_.a.size()); }

  absl::Status Prepare(bool constant) {
    StridedProduct one;
    one.m = product_.m;
    one.n = product_.n;
    one.k = product_.k;
    one.a_row_stride = product_.trans_a ? 1 : product_.k;
    one.a_depth_stride = product_.trans_a ? product_.m : 1;
    one.b_depth_stride = product_.trans_b ? 1 : product_.n;
    one.b_column_stride = product_.trans_b ? product_.k : 1;
    one.y_row_stride = product_.n;
    one.alpha = product_.alpha;
    const int lanes = shares_matrices_ ? UsefulThreads(threads_, matrices(), nanoseconds_) : 1;
    for (int i = 0; i < lanes; ++i) {
      // Weights with a batch stay as they are: constant ones are rare.
      WEFT_ASSIGN_OR_RETURN(PackedProduct packed,
                            PackedProduct::Create(one, shares_matrices_ ? 1 : threads_,
                                                  constant && matrices() == 1, layout_));
      lanes_.push_back(std::move(packed));
    }
    return absl::OkStatus();
  }

  void RunMatrix(const KernelContext& context, PackedProduct& packed, int64_t i) const {
    float* const y = Output<float>(context, 0) + i * product_.m * product_.n;
    const bool is_fused = bias_mode_ == BiasMode::kFused;
    const float* const added = is_fused ? Input<float>(context, 2) : y;
    packed.Run(Input<float>(context, 0) + offsets_.a[i], Input<float>(context, 1) + offsets_.b[i],
               bias_mode_ == BiasMode::kNone ? nullptr : added, is_fused ? 0 : product_.n, y,
               context.workspace);
  }

  void Prefill(const KernelContext& context) const {
    ParallelFor(threads_, product_.m, 0.5 * static_cast<double>(product_.n), 1,
                [&](int64_t begin, int64_t end) { FillWithC(context, product_, begin, end); });
  }

  const MatrixProduct product_;
  const BatchOffsets offsets_;
  const BiasMode bias_mode_;
  const int threads_;
  double nanoseconds_ = 0;        // of a matrix
  bool shares_matrices_ = false;  // else threads share the work of each
  WorkspaceLayout layout_;
  std::vector<PackedProduct> lanes_;  // one per thread that takes matrices
};

// oneDNN takes twelve axes.
constexpr int kMaxBatchAxes = 10;

// Read from ops/kernels/cpu/linear:product_benchmark. oneDNN's kernels for AVX-512 attain more than
// ours in most products. But a call of it costs half a microsecond, and a plain B whose rows are
// multiples of 4 KiB apart takes it half as long again. Without AVX-512 its products of many rows
// gain little from a second thread.
ProductBy ChooseProduct(const PrepareContext& context, const MatrixProduct& product) {
  static const bool kHasAvx512 = EffectiveInstructionSet() >= InstructionSet::kAvx512Core;
  const double size = static_cast<double>(product.m * product.n) * static_cast<double>(product.k);
  const bool is_constant = context.InputIsConstant(1);
  const bool has_rows = !is_constant && !product.trans_b;  // B's, of n elements
  if (size <= (kHasAvx512 ? 64e3 : 256e3)) return ProductBy::kPacked;
  if (kHasAvx512) {
    const bool is_crowded = has_rows && product.n % 1024 == 0 && product.m >= 32;
    return is_crowded && product.m <= 256 ? ProductBy::kPacked : ProductBy::kOnednn;
  }
  const bool has_few_rows =
      product.m >= 2 && ((has_rows && product.m <= 4) || (is_constant && product.m <= 8));
  const bool is_shared = context.threads() > 1 && product.m >= 256 &&
                         NanosecondsOf(product) >= 4 * kNanosecondsPerThread;
  return has_few_rows || is_shared ? ProductBy::kPacked : ProductBy::kOnednn;
}

// 16-bit floats, with elements to sum.
absl::StatusOr<std::unique_ptr<Kernel>> PrepareHalfProduct(const PrepareContext& context,
                                                           const MatrixProduct& product) {
  if (context.InputDType(0) == DType::kBfloat16 && OnednnMultipliesBfloat16() &&
      BiasModeOf(product) != BiasMode::kPrefilled) {
    return CatchOnednn(context, [&] { return OnednnProduct::Create(context, product); });
  }
  return Widened([&](const PrepareContext& wide) { return PrepareMatrixProduct(wide, product); })(
      context);
}

}  // namespace

Shape MatrixProduct::batch() const {
  Shape shape = a_batch;
  for (int i = 0; i < shape.rank(); ++i) {
    if (shape.dim(i) == 1) shape.set_dim(i, b_batch.dim(i));
  }
  return shape;
}

MatrixProduct Simplified(const MatrixProduct& product) {
  MatrixProduct simple = product;
  const bool rows_only = product.b_batch.num_elements() == 1 && !product.trans_a &&
                         (!product.has_c || product.c_row_stride == 0);
  if (rows_only) {
    simple.m *= product.a_batch.num_elements();
    simple.a_batch = simple.b_batch = Shape{};
    return simple;
  }
  simple.a_batch = simple.b_batch = Shape{};
  for (int i = 0; i < product.a_batch.rank(); ++i) {
    const int64_t a = product.a_batch.dim(i);
    const int64_t b = product.b_batch.dim(i);
    if (a == 1 && b == 1) continue;
    const int last = simple.a_batch.rank() - 1;
    const bool alike = last >= 0 &&
                       (a == b) == (simple.a_batch.dim(last) == simple.b_batch.dim(last)) &&
                       (a == b || (a == 1) == (simple.a_batch.dim(last) == 1));
    if (alike) {
      simple.a_batch.set_dim(last, simple.a_batch.dim(last) * a);
      simple.b_batch.set_dim(last, simple.b_batch.dim(last) * b);
    } else {
      simple.a_batch.AddDim(a);
      simple.b_batch.AddDim(b);
    }
  }
  return simple;
}

absl::StatusOr<std::unique_ptr<Kernel>> PrepareLoopProduct(const PrepareContext& context,
                                                           const MatrixProduct& product) {
  using Types = TypeList<float, double, Float16, Bfloat16, int32_t, int64_t, uint32_t, uint64_t>;
  return PrepareByDType(context, context.InputDType(0), Types{},
                        [&](auto zero) -> absl::StatusOr<std::unique_ptr<Kernel>> {
                          return std::make_unique<LoopProduct<decltype(zero)>>(context, product);
                        });
}

absl::StatusOr<std::unique_ptr<Kernel>> PrepareMatrixProduct(const PrepareContext& context,
                                                             const MatrixProduct& product,
                                                             ProductBy by) {
  const MatrixProduct simple = Simplified(product);
  const bool empty = simple.m == 0 || simple.n == 0 || simple.k == 0 ||
                     simple.a_batch.num_elements() == 0 || simple.b_batch.num_elements() == 0;
  const DType dtype = context.InputDType(0);
  const bool is_half = dtype == DType::kFloat16 || dtype == DType::kBfloat16;
  if (empty || simple.a_batch.rank() > kMaxBatchAxes || (dtype != DType::kFloat32 && !is_half)) {
    return PrepareLoopProduct(context, simple);
  }
  if (is_half) return PrepareHalfProduct(context, simple);
  if (by == ProductBy::kFastest) by = ChooseProduct(context, simple);
  if (by == ProductBy::kPacked) return PackedKernel::Create(context, simple);
  return CatchOnednn(context, [&] { return OnednnProduct::Create(context, simple); });
}

}  // namespace weft::cpu
