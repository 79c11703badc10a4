// Attention. float32 goes in blocks (blocked_attention.h), unless its scores are wanted: then a
// block of queries at a time has a product with the keys, the softmax of its rows and a product
// with the values, in a scratch block that stays in the cache. Other types, and softmax in another
// precision, row by row in float or double with the roundings that the standard's function body
// has.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <memory>
#include <utility>
#include <vector>

#include "ops/kernels/cpu/attention/attention_plan.h"
#include "ops/kernels/cpu/attention/blocked_attention.h"
#include "ops/kernels/cpu/blocks/matrix_product.h"
#include "ops/kernels/cpu/blocks/operand.h"
#include "ops/kernels/cpu/blocks/parallel.h"
#include "ops/kernels/cpu/blocks/workspace.h"
#include "ops/kernels/cpu/normalization/softmax_simd.h"
#include "platform/status_macros.h"

namespace weft::cpu {
namespace {

// ---- What both kernels do.

template <typename C, typename T>
void ConvertAs(const void* from, int64_t count, C* to) {
  const T* source = static_cast<const T*>(from);
  for (int64_t i = 0; i < count; ++i) to[i] = static_cast<C>(Load(source[i]));
}

template <typename C>
void Convert(DType dtype, const void* from, int64_t count, C* to) {
  DispatchDType(dtype, [&](auto zero) { ConvertAs<C, decltype(zero)>(from, count, to); });
}

// A mask as what is added to the scores: of bool, 0 where it is true and minus infinity elsewhere.
template <typename C>
void ConvertMask(DType dtype, const void* mask, int64_t count, C* bias) {
  if (dtype != DType::kBool) return Convert(dtype, mask, count, bias);
  const bool* source = static_cast<const bool*>(mask);
  for (int64_t i = 0; i < count; ++i) {
    bias[i] = source[i] ? C{0} : -std::numeric_limits<C>::infinity();
  }
}

const int64_t* LengthsOf(const AttentionPlan& plan, const KernelContext& run) {
  return plan.has_lengths ? Input<int64_t>(run, kValidLengths) : nullptr;
}

void WritePresent(const AttentionPlan& plan, const KernelContext& run, int key_width,
                  int value_width) {
  const void* past_key = plan.has_past ? run.inputs[kPastKey] : nullptr;
  const void* past_value = plan.has_past ? run.inputs[kPastValue] : nullptr;
  if (plan.wants_present_key) {
    plan.JoinPast(past_key, run.inputs[kKey], plan.key_size, plan.total * plan.key_size, key_width,
                  run.outputs[kPresentKey]);
  }
  if (plan.wants_present_value) {
    plan.JoinPast(past_value, run.inputs[kValue], plan.value_size, plan.total * plan.value_size,
                  value_width, run.outputs[kPresentValue]);
  }
}

// ---- float32

// A context for the products within the kernel: one thread, nothing constant.
class ProductContext final : public PrepareContext {
 public:
  explicit ProductContext(const PrepareContext& outer) : outer_(outer) {}
  const Node& node() const override { return outer_.node(); }
  const Shape& InputShape(int i) const override { return outer_.InputShape(i); }
  const Shape& OutputShape(int i) const override { return outer_.OutputShape(i); }
  DType InputDType(int) const override { return DType::kFloat32; }
  DType OutputDType(int) const override { return DType::kFloat32; }
  const Tensor* InputValue(int) const override { return nullptr; }
  const OperandSlice& InputSlice(int i) const override { return outer_.InputSlice(i); }
  const OperandSlice& OutputSlice(int i) const override { return outer_.OutputSlice(i); }
  Device& device() const override { return outer_.device(); }
  int threads() const override { return 1; }
  bool strict() const override { return outer_.strict(); }
  bool InputIsConstant(int) const override { return false; }

 private:
  const PrepareContext& outer_;
};

constexpr int64_t kMaxBlockRows = 64;
// Scores of a block that stay in the second-level cache.
constexpr int64_t kBlockScores = 64 * 1024;
constexpr double kNanosecondsPerProduct = 0.03;
constexpr double kNanosecondsPerScore = 1.0;
// Widths of a block that there are products for, where blocks may end before the last key.
constexpr int64_t kMaxWidths = 8;
constexpr int64_t kWidthGrain = 16;

// All rows of queries that share a head of keys are one matrix, cut into blocks. Each thread has
// products and scratch memory of its own.
class FloatAttention final : public Kernel {
 public:
  static absl::StatusOr<std::unique_ptr<Kernel>> Create(const PrepareContext& context) {
    auto kernel = std::make_unique<FloatAttention>(context);
    WEFT_RETURN_IF_ERROR(kernel->Prepare(context));
    return kernel;
  }

  explicit FloatAttention(const PrepareContext& context)
      : plan_(context), mask_dtype_(context.InputDType(kMask)) {
    rows_ = plan_.group() * plan_.queries;
    block_ =
        std::clamp<int64_t>(kBlockScores / std::max<int64_t>(plan_.total, 1), 8, kMaxBlockRows);
    block_ = std::max<int64_t>(std::min(block_, rows_), 1);
    blocks_ = (rows_ + block_ - 1) / block_;
    tasks_ = plan_.batch * plan_.kv_heads * blocks_;
    const double products = static_cast<double>(plan_.key_size + plan_.value_size);
    const double per_score = kNanosecondsPerScore + kNanosecondsPerProduct * products;
    task_nanoseconds_ = static_cast<double>(block_ * plan_.total) * per_score;
    slots_.resize(UsefulThreads(context.threads(), tasks_, task_nanoseconds_));
    const bool may_end_early = plan_.causal || plan_.right >= 0 || plan_.has_lengths;
    width_step_ = plan_.total;
    if (may_end_early && !plan_.wants_scores && plan_.total > 0) {
      const int64_t step = (plan_.total + kMaxWidths - 1) / kMaxWidths;
      width_step_ = (step + kWidthGrain - 1) / kWidthGrain * kWidthGrain;
    }
  }

  size_t workspace_bytes() const override { return layout_.total(); }

  absl::Status Run(const KernelContext& run) override {
    const int64_t* lengths = LengthsOf(plan_, run);
    WEFT_RETURN_IF_ERROR(plan_.CheckLengths(lengths));
    WritePresent(plan_, run, sizeof(float), sizeof(float));
    const Operands operands = {PrepareRows(run, kKey), PrepareRows(run, kValue), PrepareMask(run),
                               lengths};
    for (Slot& slot : slots_) slot.status = absl::OkStatus();
    ParallelForSlots(static_cast<int>(slots_.size()), tasks_, task_nanoseconds_, 1,
                     [&](int s, int64_t begin, int64_t end) {
                       Slot& slot = slots_[s];
                       for (int64_t task = begin; task < end && slot.status.ok(); ++task) {
                         slot.status =
                             RunBlock(run, operands, slot, task / blocks_, task % blocks_);
                       }
                     });
    for (const Slot& slot : slots_) WEFT_RETURN_IF_ERROR(slot.status);
    return absl::OkStatus();
  }

 private:
  // Of a block with the first `width` keys.
  struct Products {
    int64_t width = 0;
    std::unique_ptr<Kernel> scores;
    std::unique_ptr<Kernel> values;
    size_t scratch = 0;  // offset in the workspace
  };
  // By width: width_step_ more each, the last with all keys.
  using ProductsByWidth = std::vector<Products>;
  struct Slot {
    ProductsByWidth full;
    ProductsByWidth last;  // the last block of a head, where it is shorter
    size_t queries = 0, scores = 0, values = 0;
    absl::Status status;
  };
  struct Operands {
    const float* keys;
    const float* values;
    const float* mask;  // null: none
    const int64_t* lengths;
  };

  int64_t KeyStride() const { return Padded(plan_.total * plan_.key_size); }
  int64_t ValueStride() const { return Padded(plan_.total * plan_.value_size); }
  // Heads begin on 64 bytes, as oneDNN wants them.
  static int64_t Padded(int64_t floats) { return (floats + 15) / 16 * 16; }
  int64_t last_rows() const { return rows_ - (blocks_ - 1) * block_; }

  absl::Status Prepare(const PrepareContext& context) {
    const auto floats = [&](int64_t count) { return layout_.Add(count * sizeof(float)); };
    if (!IsDirect(kKey)) key_rows_ = floats(plan_.batch * plan_.kv_heads * KeyStride());
    if (!IsDirect(kValue)) value_rows_ = floats(plan_.batch * plan_.kv_heads * ValueStride());
    if (plan_.has_mask && mask_dtype_ != DType::kFloat32) mask_ = floats(plan_.mask_elements);
    for (Slot& slot : slots_) {
      slot.queries = floats(block_ * plan_.key_size);
      slot.scores = floats(block_ * plan_.total);
      slot.values = floats(block_ * plan_.value_size);
      WEFT_ASSIGN_OR_RETURN(slot.full, MakeProducts(context, block_));
      if (last_rows() == block_) continue;
      WEFT_ASSIGN_OR_RETURN(slot.last, MakeProducts(context, last_rows()));
    }
    return absl::OkStatus();
  }

  absl::StatusOr<ProductsByWidth> MakeProducts(const PrepareContext& context, int64_t rows) {
    ProductsByWidth products;
    int64_t width = 0;
    do {
      width = std::min(width + width_step_, plan_.total);
      WEFT_ASSIGN_OR_RETURN(Products of_width, MakeProducts(context, rows, width));
      products.push_back(std::move(of_width));
    } while (width < plan_.total);
    return products;
  }

  absl::StatusOr<Products> MakeProducts(const PrepareContext& context, int64_t rows,
                                        int64_t width) {
    const ProductContext inner(context);
    MatrixProduct scores;
    scores.m = rows;
    scores.n = width;
    scores.k = plan_.key_size;
    scores.trans_b = true;
    MatrixProduct values;
    values.m = rows;
    values.n = plan_.value_size;
    values.k = width;
    Products products;
    products.width = width;
    WEFT_ASSIGN_OR_RETURN(products.scores, PrepareMatrixProduct(inner, scores));
    WEFT_ASSIGN_OR_RETURN(products.values, PrepareMatrixProduct(inner, values));
    products.scratch = layout_.Add(
        std::max(products.scores->workspace_bytes(), products.values->workspace_bytes()));
    return products;
  }

  // True where the products read the operand itself.
  bool IsDirect(int input) const {
    const int64_t head = plan_.total * (input == kKey ? plan_.key_size : plan_.value_size);
    return !plan_.packed && plan_.past == 0 && head == Padded(head);
  }

  // The keys or values of all heads, each on 64 bytes.
  const float* PrepareRows(const KernelContext& run, int input) const {
    if (IsDirect(input)) return Input<float>(run, input);
    const bool keys = input == kKey;
    const int past = keys ? kPastKey : kPastValue;
    float* rows = static_cast<float*>(At(run.workspace, keys ? key_rows_ : value_rows_));
    plan_.JoinPast(plan_.has_past ? run.inputs[past] : nullptr, run.inputs[input],
                   keys ? plan_.key_size : plan_.value_size, keys ? KeyStride() : ValueStride(),
                   sizeof(float), rows);
    return rows;
  }

  const float* PrepareMask(const KernelContext& run) const {
    if (!plan_.has_mask) return nullptr;
    if (mask_dtype_ == DType::kFloat32) return Input<float>(run, kMask);
    float* bias = static_cast<float*>(At(run.workspace, mask_));
    ConvertMask(mask_dtype_, run.inputs[kMask], plan_.mask_elements, bias);
    return bias;
  }

  // Those for the keys that any of the rows may attend.
  Products& ChooseProducts(ProductsByWidth& products, const int64_t* lengths, int64_t head,
                           int64_t first, int64_t rows) const {
    if (products.size() == 1) return products.front();
    int64_t end = 1;
    for (int64_t r = first; r < first + rows; ++r) {
      const Place at = PlaceOf(head, r);
      end = std::max(end, plan_.KeysOf(lengths, at.b, at.query).end);
    }
    return products[(end - 1) / width_step_];
  }

  absl::Status RunBlock(const KernelContext& run, const Operands& operands, Slot& slot,
                        int64_t head, int64_t block) {
    const int64_t first = block * block_;
    const int64_t rows = std::min(block_, rows_ - first);
    Products& products =
        ChooseProducts(rows == block_ ? slot.full : slot.last, operands.lengths, head, first, rows);
    float* queries = static_cast<float*>(At(run.workspace, slot.queries));
    float* scores = static_cast<float*>(At(run.workspace, slot.scores));
    float* values = static_cast<float*>(At(run.workspace, slot.values));
    const int64_t size = plan_.key_size;
    for (int64_t r = 0; r < rows; ++r) {
      const float* query = Input<float>(run, kQuery) + QueryRow(head, first + r, size);
      for (int64_t e = 0; e < size; ++e) queries[r * size + e] = query[e] * plan_.scale;
    }
    KernelContext inner = run;
    inner.workspace = At(run.workspace, products.scratch);
    const void* score_inputs[] = {queries, operands.keys + head * KeyStride()};
    void* score_outputs[] = {scores};
    inner.inputs = score_inputs;
    inner.outputs = score_outputs;
    WEFT_RETURN_IF_ERROR(products.scores->Run(inner));
    for (int64_t r = 0; r < rows; ++r) {
      FinishRow(run, operands, head, first + r, products.width, scores + r * products.width);
    }
    const void* value_inputs[] = {scores, operands.values + head * ValueStride()};
    void* value_outputs[] = {values};
    inner.inputs = value_inputs;
    inner.outputs = value_outputs;
    WEFT_RETURN_IF_ERROR(products.values->Run(inner));
    for (int64_t r = 0; r < rows && plan_.value_size > 0; ++r) {
      std::memcpy(Output<float>(run, kAttended) + QueryRow(head, first + r, plan_.value_size),
                  values + r * plan_.value_size, plan_.value_size * sizeof(float));
    }
    return absl::OkStatus();
  }

  // Sample, query head and position of a row of head `head` of keys.
  struct Place {
    int64_t b, h, query;
  };
  Place PlaceOf(int64_t head, int64_t row) const {
    return {head / plan_.kv_heads, head % plan_.kv_heads * plan_.group() + row / plan_.queries,
            row % plan_.queries};
  }
  int64_t QueryRow(int64_t head, int64_t row, int64_t size) const {
    const Place at = PlaceOf(head, row);
    return plan_.Row(plan_.q_heads, plan_.queries, size, at.b, at.h, at.query);
  }

  // From raw scores to probabilities. `total`: keys that there are scores for.
  void FinishRow(const KernelContext& run, const Operands& operands, int64_t head, int64_t row,
                 int64_t total, float* scores) const {
    const Place at = PlaceOf(head, row);
    const auto show = [&](ScoresMode stage) {
      if (!plan_.wants_scores || plan_.mode != stage || total == 0) return;
      const int64_t to = (at.b * plan_.q_heads + at.h) * plan_.queries + at.query;
      std::memcpy(Output<float>(run, kScores) + to * total, scores, total * sizeof(float));
    };
    show(ScoresMode::kRaw);
    if (plan_.softcap > 0) {
      for (int64_t j = 0; j < total; ++j) {
        scores[j] = plan_.softcap * std::tanh(scores[j] / plan_.softcap);
      }
    }
    show(ScoresMode::kCapped);
    const KeyRange range = plan_.KeysOf(operands.lengths, at.b, at.query);
    const float* mask =
        operands.mask == nullptr ? nullptr : operands.mask + plan_.MaskRow(at.b, at.h, at.query);
    const bool any = AddBias(scores, total, range, mask, plan_.mask_strides[3]);
    show(ScoresMode::kBiased);
    std::fill(scores, scores + range.begin, 0.0f);
    std::fill(scores + range.end, scores + total, 0.0f);
    if (any) {
      SoftmaxRows(SoftmaxOp::kSoftmax, scores + range.begin, nullptr, scores + range.begin, 1,
                  range.end - range.begin);
    } else {
      std::fill(scores + range.begin, scores + range.end, 0.0f);
    }
    show(ScoresMode::kProbabilities);
  }

  const AttentionPlan plan_;
  const DType mask_dtype_;
  int64_t rows_ = 0;    // of queries that share a head of keys
  int64_t block_ = 0;   // rows of a block
  int64_t blocks_ = 0;  // per head of keys
  int64_t tasks_ = 0;
  double task_nanoseconds_ = 0;
  int64_t width_step_ = 0;
  std::vector<Slot> slots_;
  WorkspaceLayout layout_;
  size_t key_rows_ = 0, value_rows_ = 0, mask_ = 0;
};

// ---- Any floating types.

template <typename C>
C RoundTo(DType dtype, C value) {
  switch (dtype) {
    case DType::kFloat16:
      return ToFloat(ToFloat16(static_cast<float>(value)));
    case DType::kBfloat16:
      return ToFloat(ToBfloat16(static_cast<float>(value)));
    case DType::kFloat32:
      return static_cast<float>(value);
    default:
      return value;
  }
}

// The softmax of a row as computed in `dtype`; of nothing but minus infinity, zeros.
template <typename C>
void SoftmaxIn(DType dtype, C* row, int64_t size) {
  C largest = -std::numeric_limits<C>::infinity();
  for (int64_t j = 0; j < size; ++j) {
    row[j] = RoundTo(dtype, row[j]);
    largest = row[j] > largest || row[j] != row[j] ? row[j] : largest;
  }
  if (largest == -std::numeric_limits<C>::infinity()) return std::fill(row, row + size, C{0});
  C sum = 0;
  for (int64_t j = 0; j < size; ++j) {
    row[j] = RoundTo(dtype, std::exp(RoundTo(dtype, row[j] - largest)));
    sum += row[j];
  }
  sum = RoundTo(dtype, sum);
  for (int64_t j = 0; j < size; ++j) row[j] = RoundTo(dtype, row[j] / sum);
}

// C: float, or double where an operand or the softmax is float64.
template <typename C>
class RoundingAttention final : public Kernel {
 public:
  explicit RoundingAttention(const PrepareContext& context)
      : plan_(context),
        dtype_(context.InputDType(kQuery)),
        value_dtype_(context.InputDType(kValue)),
        mask_dtype_(context.InputDType(kMask)),
        threads_(context.threads()) {
    const auto numbers = [&](int64_t count) { return layout_.Add(count * sizeof(C)); };
    const int64_t heads = plan_.batch * plan_.kv_heads;
    const int64_t rows = plan_.batch * plan_.q_heads * plan_.queries;
    key_bytes_ = layout_.Add(heads * plan_.total * plan_.key_size * DTypeBits(dtype_) / 8);
    value_bytes_ =
        layout_.Add(heads * plan_.total * plan_.value_size * DTypeBits(value_dtype_) / 8);
    queries_ = numbers(rows * plan_.key_size);
    keys_ = numbers(heads * plan_.total * plan_.key_size);
    values_ = numbers(heads * plan_.total * plan_.value_size);
    mask_ = numbers(plan_.mask_elements);
    scores_ = numbers(rows * plan_.total);
  }

  size_t workspace_bytes() const override { return layout_.total(); }

  absl::Status Run(const KernelContext& run) override {
    const int64_t* lengths = LengthsOf(plan_, run);
    WEFT_RETURN_IF_ERROR(plan_.CheckLengths(lengths));
    WritePresent(plan_, run, DTypeBits(dtype_) / 8, DTypeBits(value_dtype_) / 8);
    ConvertOperands(run);
    const int64_t rows = plan_.batch * plan_.q_heads * plan_.queries;
    const double cost = static_cast<double>(plan_.total) *
                        (20.0 + static_cast<double>(plan_.key_size + plan_.value_size));
    ParallelFor(threads_, rows, cost, 1, [&](int64_t begin, int64_t end) {
      for (int64_t row = begin; row < end; ++row) RunRow(run, lengths, row);
    });
    return absl::OkStatus();
  }

 private:
  C* Numbers(const KernelContext& run, size_t offset) const {
    return static_cast<C*>(At(run.workspace, offset));
  }

  void ConvertOperands(const KernelContext& run) const {
    const C root = RoundTo(dtype_, static_cast<C>(std::sqrt(static_cast<double>(plan_.scale))));
    const auto convert = [&](DType dtype, const void* from, int64_t count, C* to, C factor) {
      Convert(dtype, from, count, to);
      for (int64_t i = 0; i < count; ++i) to[i] = RoundTo(dtype, to[i] * factor);
    };
    const auto join = [&](int past, int input, int64_t size, DType dtype, size_t bytes) {
      plan_.JoinPast(plan_.has_past ? run.inputs[past] : nullptr, run.inputs[input], size,
                     plan_.total * size, DTypeBits(dtype) / 8, At(run.workspace, bytes));
      return At(run.workspace, bytes);
    };
    const int64_t key_rows = plan_.batch * plan_.kv_heads * plan_.total;
    const int64_t rows = plan_.batch * plan_.q_heads * plan_.queries;
    convert(dtype_, run.inputs[kQuery], rows * plan_.key_size, Numbers(run, queries_), root);
    convert(dtype_, join(kPastKey, kKey, plan_.key_size, dtype_, key_bytes_),
            key_rows * plan_.key_size, Numbers(run, keys_), root);
    Convert(value_dtype_, join(kPastValue, kValue, plan_.value_size, value_dtype_, value_bytes_),
            key_rows * plan_.value_size, Numbers(run, values_));
    if (plan_.has_mask) {
      ConvertMask(mask_dtype_, run.inputs[kMask], plan_.mask_elements, Numbers(run, mask_));
    }
  }

  void StoreRow(const C* row, int64_t size, void* to, int64_t offset) const {
    DispatchDType(dtype_, [&](auto zero) {
      using T = decltype(zero);
      T* out = static_cast<T*>(to) + offset;
      for (int64_t i = 0; i < size; ++i) out[i] = Store<T>(static_cast<ComputeType<T>>(row[i]));
    });
  }

  void RunRow(const KernelContext& run, const int64_t* lengths, int64_t row) const {
    const int64_t query = row % plan_.queries;
    const int64_t h = row / plan_.queries % plan_.q_heads;
    const int64_t b = row / plan_.queries / plan_.q_heads;
    const int64_t head = b * plan_.kv_heads + h / plan_.group();
    C* scores = Numbers(run, scores_) + row * plan_.total;
    const auto show = [&](ScoresMode stage) {
      if (!plan_.wants_scores || plan_.mode != stage) return;
      StoreRow(scores, plan_.total, run.outputs[kScores], row * plan_.total);
    };
    Products(run, plan_.Row(plan_.q_heads, plan_.queries, plan_.key_size, b, h, query), head,
             scores);
    show(ScoresMode::kRaw);
    if (plan_.softcap > 0) Cap(scores);
    show(ScoresMode::kCapped);
    const KeyRange range = plan_.KeysOf(lengths, b, query);
    const C* mask = plan_.has_mask ? Numbers(run, mask_) + plan_.MaskRow(b, h, query) : nullptr;
    const bool any = AddBias(scores, plan_.total, range, mask, plan_.mask_strides[3]);
    for (int64_t j = 0; j < plan_.total; ++j) scores[j] = RoundTo(dtype_, scores[j]);
    show(ScoresMode::kBiased);
    if (any) {
      SoftmaxIn(plan_.softmax_dtype, scores, plan_.total);
    } else {
      std::fill(scores, scores + plan_.total, C{0});
    }
    for (int64_t j = 0; j < plan_.total; ++j) scores[j] = RoundTo(dtype_, scores[j]);
    show(ScoresMode::kProbabilities);
    const int64_t to = plan_.Row(plan_.q_heads, plan_.queries, plan_.value_size, b, h, query);
    const C* values = Numbers(run, values_) + head * plan_.total * plan_.value_size;
    for (int64_t e = 0; e < plan_.value_size; ++e) {
      C sum = 0;
      for (int64_t j = 0; j < plan_.total; ++j) sum += scores[j] * values[j * plan_.value_size + e];
      StoreRow(&sum, 1, run.outputs[kAttended], to + e);
    }
  }

  void Products(const KernelContext& run, int64_t query_offset, int64_t head, C* scores) const {
    const C* query = Numbers(run, queries_) + query_offset;
    const C* keys = Numbers(run, keys_) + head * plan_.total * plan_.key_size;
    for (int64_t j = 0; j < plan_.total; ++j) {
      C sum = 0;
      for (int64_t e = 0; e < plan_.key_size; ++e) sum += query[e] * keys[j * plan_.key_size + e];
      scores[j] = RoundTo(dtype_, sum);
    }
  }

  void Cap(C* scores) const {
    const C cap = RoundTo(dtype_, static_cast<C>(plan_.softcap));
    for (int64_t j = 0; j < plan_.total; ++j) {
      const C angle = RoundTo(dtype_, scores[j] / cap);
      scores[j] = RoundTo(dtype_, RoundTo(dtype_, std::tanh(angle)) * cap);
    }
  }

  const AttentionPlan plan_;
  const DType dtype_;
  const DType value_dtype_;
  const DType mask_dtype_;
  const int threads_;
  WorkspaceLayout layout_;
  size_t key_bytes_ = 0, value_bytes_ = 0, queries_ = 0, keys_ = 0, values_ = 0, mask_ = 0;
  size_t scores_ = 0;
};

absl::StatusOr<std::unique_ptr<Kernel>> PrepareAttention(const PrepareContext& context) {
  const DType dtype = context.InputDType(kQuery);
  const DType value_dtype = context.InputDType(kValue);
  const AttentionPlan plan(context);
  const DType softmax = plan.softmax_dtype;
  const DType types[] = {dtype, value_dtype, softmax};
  const auto all = [&](DType wanted) {
    return std::all_of(std::begin(types), std::end(types),
                       [&](DType own) { return own == wanted; });
  };
  if (all(DType::kFloat32)) {
    return AttendsInBlocks(plan) ? PrepareBlockedAttention(context)
                                 : FloatAttention::Create(context);
  }
  if (std::find(std::begin(types), std::end(types), DType::kFloat64) != std::end(types)) {
    return std::make_unique<RoundingAttention<double>>(context);
  }
  return std::make_unique<RoundingAttention<float>>(context);
}

WEFT_REGISTER_KERNEL("", "Attention", DeviceKind::kCpu, PrepareAttention);

}  // namespace
}  // namespace weft::cpu
