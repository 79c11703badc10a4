// Attention: scores by products of matrices, their softmax by a kernel of ours, and products with
// the values; in pieces whose scores fit the workspace.
#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <memory>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "ops/defs/attention/attention_operands.h"
#include "ops/kernel.h"
#include "ops/kernels/cuda/attention/attention_dnn.h"
#include "ops/kernels/cuda/attention/attention_kernel.h"
#include "ops/kernels/cuda/attention/attention_launch.h"
#include "ops/kernels/cuda/blocks/launch_status.h"
#include "ops/kernels/cuda/blocks/workspace_layout.h"
#include "ops/kernels/cuda/linear/batched_product.h"
#include "ops/kernels/cuda/linear/blas_lt.h"
#include "ops/kernels/cuda/linear/matmul_launch.h"
#include "platform/status_macros.h"

namespace weft::cuda {
namespace {

// ---- Sizes.

struct AttentionSizes {
  DType dtype = DType::kFloat32;
  int64_t batch = 0;
  int64_t q_heads = 0;
  int64_t kv_heads = 0;
  int64_t queries = 0;
  int64_t keys = 0;  // without the past
  int64_t key_size = 0;
  int64_t value_size = 0;
  bool packed = false;  // operands are [batch, length, heads * size]
  double scale = 1;
  AttendedKeys attended;

  int64_t group() const { return q_heads / kv_heads; }
  int64_t total() const { return attended.total; }
  int64_t width() const { return DTypeBytes(dtype, 1); }
  DType score_dtype() const { return dtype == DType::kFloat64 ? dtype : DType::kFloat32; }
  int64_t score_width() const { return DTypeBytes(score_dtype(), 1); }
};

AttentionSizes SizesOf(const PrepareContext& context) {
  const Attributes& attributes = context.attributes();
  const Shape& q = context.InputShape(kQuery);
  const Shape& k = context.InputShape(kKey);
  const Shape& v = context.InputShape(kValue);
  AttentionSizes sizes;
  sizes.dtype = context.InputDType(kQuery);
  sizes.packed = q.rank() == 3;
  sizes.batch = q.dim(0);
  sizes.q_heads = sizes.packed ? attributes.Int("q_num_heads", 1) : q.dim(1);
  sizes.kv_heads = sizes.packed ? attributes.Int("kv_num_heads", 1) : k.dim(1);
  sizes.queries = q.dim(sizes.packed ? 1 : 2);
  sizes.keys = k.dim(sizes.packed ? 1 : 2);
  sizes.key_size = sizes.packed ? k.dim(2) / sizes.kv_heads : k.dim(3);
  sizes.value_size = sizes.packed ? v.dim(2) / sizes.kv_heads : v.dim(3);
  const double root = std::sqrt(static_cast<double>(std::max<int64_t>(sizes.key_size, 1)));
  sizes.scale = attributes.Has("scale") ? attributes.Float("scale", 1.0f) : 1 / root;
  AttendedKeys& attended = sizes.attended;
  attended.has_past = context.HasInput(kPastKey);
  attended.past = attended.has_past ? context.InputShape(kPastKey).dim(2) : 0;
  attended.total = attended.past + sizes.keys;
  attended.queries = sizes.queries;
  attended.causal = attributes.Int("is_causal", 0) != 0;
  attended.left = attributes.Int("left_window_size", -1);
  attended.right = attributes.Int("right_window_size", -1);
  attended.mask_columns = attended.total;
  if (context.HasInput(kMask)) {
    const Shape& mask = context.InputShape(kMask);
    const int64_t columns = mask.dim(mask.rank() - 1);
    if (columns != 1) attended.mask_columns = columns;
  }
  return sizes;
}

absl::Status CheckAttentionTypes(const PrepareContext& context) {
  const DType dtype = context.InputDType(kQuery);
  if (dtype != DType::kFloat32 && dtype != DType::kFloat64 && dtype != DType::kFloat16 &&
      dtype != DType::kBfloat16) {
    return context.Unimplemented(absl::StrCat("no kernel for ", std::string(DTypeName(dtype))));
  }
  for (const int i : {kKey, kValue, kPastKey, kPastValue}) {
    if (!context.HasInput(i) || context.InputDType(i) == dtype) continue;
    return context.Unimplemented(absl::StrCat(
        "attention on GPUs has operands of one type; the query is ", std::string(DTypeName(dtype)),
        ", input ", i, " is ", std::string(DTypeName(context.InputDType(i)))));
  }
  return absl::OkStatus();
}

// ---- Pieces.

// Samples, heads of keys, and queries whose scores are computed at once.
struct AttentionPiece {
  int64_t first_sample = 0, samples = 0;
  int64_t first_head = 0, heads = 0;
  int64_t first_query = 0, queries = 0;
};

// Whole samples where one fits the limit, else whole heads of keys, else queries of one.
std::vector<AttentionPiece> CutAttention(const AttentionSizes& sizes, int64_t limit) {
  const int64_t of_query =
      std::max<int64_t>(sizes.group() * sizes.total() * sizes.score_width(), 1);
  const int64_t fitting = std::max<int64_t>(limit / of_query, 1);
  const int64_t queries = std::min(fitting, sizes.queries);
  const int64_t heads =
      std::clamp<int64_t>(fitting / std::max<int64_t>(sizes.queries, 1), 1, sizes.kv_heads);
  const int64_t samples = std::clamp<int64_t>(
      fitting / std::max<int64_t>(sizes.queries * sizes.kv_heads, 1), 1, sizes.batch);
  std::vector<AttentionPiece> pieces;
  for (int64_t b = 0; b < sizes.batch; b += samples) {
    for (int64_t h = 0; h < sizes.kv_heads; h += heads) {
      for (int64_t t = 0; t < sizes.queries; t += queries) {
        pieces.push_back({b, std::min(samples, sizes.batch - b), h,
                          std::min(heads, sizes.kv_heads - h), t,
                          std::min(queries, sizes.queries - t)});
      }
    }
  }
  return pieces;
}

// ---- Products.

// Where the rows of heads lie in an operand, in elements.
struct HeadLayout {
  int64_t row = 0;     // from row to row of a head
  int64_t head = 0;    // from head to head
  int64_t sample = 0;  // from sample to sample

  int64_t Offset(int64_t b, int64_t h, int64_t s) const { return b * sample + h * head + s * row; }
};

HeadLayout LayoutOf(bool packed, int64_t heads, int64_t length, int64_t size) {
  if (packed) return {heads * size, size, length * heads * size};
  return {size, length * size, heads * length * size};
}

// The two products of a piece.
struct PieceProducts {
  std::unique_ptr<BatchedProduct> scores;
  std::unique_ptr<BatchedProduct> values;
};

class AttentionKernel final : public Kernel {
 public:
  AttentionKernel(const PrepareContext& context, int64_t score_bytes)
      : sizes_(SizesOf(context)),
        source_(absl::StrCat("Attention '", context.node().name, "': nonpad_kv_seqlen")),
        score_bytes_(score_bytes),
        has_mask_(context.HasInput(kMask)),
        mask_dtype_(context.InputDType(kMask)),
        has_lengths_(context.HasInput(kValidLengths)),
        wants_scores_(context.HasOutput(kScores)),
        softcap_(std::max(context.attributes().Float("softcap", 0.0f), 0.0f)),
        stage_(static_cast<ScoresStage>(context.attributes().Int("qk_matmul_output_mode", 0))) {
    for (const int output : {kPresentKey, kPresentValue}) {
      wants_present_[output - kPresentKey] = context.HasOutput(output);
    }
    tf32_ = sizes_.dtype == DType::kFloat32 && context.tf32();
    if (has_mask_) ReadMask(context.InputShape(kMask));
  }

  absl::Status Prepare(const PrepareContext& context) {
    const AttentionSizes& s = sizes_;
    if (s.total() > std::numeric_limits<int32_t>::max()) {
      return context.Unimplemented("attention on GPUs has less than 2^31 keys");
    }
    joins_[0] = Joins(wants_present_[0], s.key_size, joined_offsets_[0]);
    joins_[1] = Joins(wants_present_[1], s.value_size, joined_offsets_[1]);
    q_layout_ = LayoutOf(s.packed, s.q_heads, s.queries, s.key_size);
    y_layout_ = LayoutOf(s.packed, s.q_heads, s.queries, s.value_size);
    k_layout_ = joins_[0] ? LayoutOf(false, s.kv_heads, s.total(), s.key_size)
                          : LayoutOf(s.packed, s.kv_heads, s.keys, s.key_size);
    v_layout_ = joins_[1] ? LayoutOf(false, s.kv_heads, s.total(), s.value_size)
                          : LayoutOf(s.packed, s.kv_heads, s.keys, s.value_size);
    if (s.batch * s.q_heads * s.queries == 0) return absl::OkStatus();
    if (has_mask_ && mask_dtype_ != s.score_dtype()) {
      mask_offset_ = layout_.Add(mask_elements_ * s.score_width());
    }
    pieces_ = CutAttention(s, score_bytes_);
    int64_t scores = 0;
    for (const AttentionPiece& piece : pieces_) {
      scores = std::max(scores, piece.samples * piece.heads * s.group() * piece.queries);
    }
    scores_offset_ = layout_.Add(scores * s.total() * s.score_width());
    const bool in_place = s.dtype == s.score_dtype();
    probabilities_offset_ = in_place ? scores_offset_ : layout_.Add(scores * s.total() * s.width());
    return s.total() == 0 ? absl::OkStatus() : PrepareProducts(context);
  }

  size_t workspace_bytes() const override { return layout_.total(); }

  absl::Status Run(const KernelContext& run) override {
    const void* keys = run.inputs[kKey];
    const void* values = run.inputs[kValue];
    WEFT_RETURN_IF_ERROR(Join(run, 0, sizes_.key_size, keys));
    WEFT_RETURN_IF_ERROR(Join(run, 1, sizes_.value_size, values));
    if (pieces_.empty()) return absl::OkStatus();
    if (sizes_.total() == 0) return FillY(run);
    const void* mask = nullptr;
    WEFT_RETURN_IF_ERROR(PrepareMask(run, mask));
    for (const AttentionPiece& piece : pieces_) {
      WEFT_RETURN_IF_ERROR(RunPiece(run, piece, keys, values, mask));
    }
    return absl::OkStatus();
  }

 private:
  using Kind = std::tuple<int64_t, int64_t, int64_t>;  // samples, heads, queries
  static Kind KindOf(const AttentionPiece& piece) {
    return {piece.samples, piece.heads, piece.queries};
  }

  size_t Bytes(int64_t elements) const { return static_cast<size_t>(elements * sizes_.width()); }

  void ReadMask(const Shape& mask) {
    const auto strides = mask.Strides();
    mask_elements_ = mask.num_elements();
    for (int d = 0; d < mask.rank(); ++d) {
      mask_strides_[4 - mask.rank() + d] = mask.dim(d) == 1 ? 0 : strides[d];
    }
  }

  // True if keys (or values) are joined with the past: in an output, or in the workspace.
  bool Joins(bool wants_present, int64_t size, size_t& offset) {
    if (!wants_present && !sizes_.attended.has_past) return false;
    if (!wants_present) {
      offset = layout_.Add(Bytes(sizes_.batch * sizes_.kv_heads * sizes_.total() * size));
    }
    return true;
  }

  // `which`: 0 for keys, 1 for values. Points `rows` to the joined ones.
  absl::Status Join(const KernelContext& run, int which, int64_t size, const void*& rows) const {
    if (!joins_[which]) return absl::OkStatus();
    JoinPast join;
    join.past_rows = sizes_.attended.has_past ? run.inputs[kPastKey + which] : nullptr;
    join.rows = rows;
    join.joined = wants_present_[which] ? run.outputs[kPresentKey + which]
                                        : At(run.workspace, joined_offsets_[which]);
    join.batch = sizes_.batch;
    join.heads = sizes_.kv_heads;
    join.past = sizes_.attended.past;
    join.keys = sizes_.keys;
    join.size = size;
    join.packed = sizes_.packed;
    rows = join.joined;
    return LaunchStatus(LaunchJoinPast(QueueOf(run), static_cast<int>(sizes_.width()), join),
                        "a cache of keys or values");
  }

  // Of operands that are read or written from different places.
  template <typename OffsetOf>
  int PieceAlignment(OffsetOf offset_of) const {
    std::vector<int64_t> offsets;
    for (const AttentionPiece& piece : pieces_) {
      offsets.push_back(offset_of(piece) * sizes_.width());
    }
    return AlignmentOf(offsets);
  }

  BatchedProductSpec ScoresSpec(const AttentionPiece& piece) const {
    const AttentionSizes& s = sizes_;
    BatchedProductSpec spec;
    MatrixProductSpec& matrix = spec.matrix;
    matrix.dtype = s.dtype;
    matrix.y_dtype = s.score_dtype();
    matrix.tf32 = tf32_;
    matrix.m = piece.queries;
    matrix.n = matrix.y_row = s.total();
    matrix.k = s.key_size;
    matrix.trans_b = true;
    matrix.a_row = q_layout_.row;
    matrix.b_row = k_layout_.row;
    matrix.alpha = s.scale;
    matrix.a_alignment = PieceAlignment([&](const AttentionPiece& p) { return QueryOffset(p); });
    matrix.b_alignment = PieceAlignment([&](const AttentionPiece& p) { return KeyOffset(p); });
    const int64_t head = piece.queries * s.total();
    spec.axes = {
        {piece.samples, q_layout_.sample, k_layout_.sample, piece.heads * s.group() * head},
        {piece.heads, s.group() * q_layout_.head, k_layout_.head, s.group() * head},
        {s.group(), q_layout_.head, 0, head}};
    return spec;
  }

  BatchedProductSpec ValuesSpec(const AttentionPiece& piece) const {
    const AttentionSizes& s = sizes_;
    BatchedProductSpec spec;
    MatrixProductSpec& matrix = spec.matrix;
    matrix.dtype = matrix.y_dtype = s.dtype;
    matrix.tf32 = tf32_;
    matrix.m = piece.queries;
    matrix.n = s.value_size;
    matrix.k = matrix.a_row = s.total();
    matrix.b_row = v_layout_.row;
    matrix.y_row = y_layout_.row;
    matrix.b_alignment = PieceAlignment([&](const AttentionPiece& p) { return ValueOffset(p); });
    matrix.y_alignment = PieceAlignment([&](const AttentionPiece& p) { return YOffset(p); });
    const int64_t head = piece.queries * s.total();
    spec.axes = {
        {piece.samples, piece.heads * s.group() * head, v_layout_.sample, y_layout_.sample},
        {piece.heads, s.group() * head, v_layout_.head, s.group() * y_layout_.head},
        {s.group(), head, 0, y_layout_.head}};
    return spec;
  }

  absl::Status PrepareProducts(const PrepareContext& context) {
    WEFT_ASSIGN_OR_RETURN(BlasLt * library, BlasLtOf(context.device()));
    size_t bytes = 0;
    for (const AttentionPiece& piece : pieces_) {
      PieceProducts& products = products_[KindOf(piece)];
      if (products.scores == nullptr && sizes_.key_size > 0) {
        WEFT_ASSIGN_OR_RETURN(products.scores,
                              Named(context, BatchedProduct::Create(*library, ScoresSpec(piece))));
        bytes = std::max(bytes, products.scores->workspace_bytes());
      }
      if (products.values == nullptr && sizes_.value_size > 0) {
        WEFT_ASSIGN_OR_RETURN(products.values,
                              Named(context, BatchedProduct::Create(*library, ValuesSpec(piece))));
        bytes = std::max(bytes, products.values->workspace_bytes());
      }
    }
    library_offset_ = layout_.Add(bytes);
    return absl::OkStatus();
  }

  static absl::StatusOr<std::unique_ptr<BatchedProduct>> Named(
      const PrepareContext& context, absl::StatusOr<std::unique_ptr<BatchedProduct>> product) {
    if (!absl::IsUnimplemented(product.status())) return product;
    return context.Unimplemented(std::string(product.status().message()));
  }

  int64_t QueryOffset(const AttentionPiece& p) const {
    return q_layout_.Offset(p.first_sample, p.first_head * sizes_.group(), p.first_query);
  }
  int64_t YOffset(const AttentionPiece& p) const {
    return y_layout_.Offset(p.first_sample, p.first_head * sizes_.group(), p.first_query);
  }
  int64_t KeyOffset(const AttentionPiece& p) const {
    return k_layout_.Offset(p.first_sample, p.first_head, 0);
  }
  int64_t ValueOffset(const AttentionPiece& p) const {
    return v_layout_.Offset(p.first_sample, p.first_head, 0);
  }

  // Y of attention to nothing.
  absl::Status FillY(const KernelContext& run) const {
    SpreadAddend zeros;
    zeros.y = run.outputs[kY];
    zeros.rows = sizes_.batch * sizes_.q_heads * sizes_.queries;
    zeros.columns = sizes_.value_size;
    if (zeros.columns == 0) return absl::OkStatus();
    return LaunchStatus(LaunchSpreadAddend(QueueOf(run), sizes_.dtype, zeros), "zeros");
  }

  // Points `mask` to what is added to scores.
  absl::Status PrepareMask(const KernelContext& run, const void*& mask) const {
    if (!has_mask_) return absl::OkStatus();
    mask = run.inputs[kMask];
    if (mask_dtype_ == sizes_.score_dtype()) return absl::OkStatus();
    MaskToBias convert;
    convert.mask = mask;
    convert.bias = At(run.workspace, mask_offset_);
    convert.count = mask_elements_;
    mask = convert.bias;
    const bool wide = sizes_.score_dtype() == DType::kFloat64;
    return LaunchStatus(LaunchMaskToBias(QueueOf(run), mask_dtype_, wide, convert), "a mask");
  }

  absl::Status RunPiece(const KernelContext& run, const AttentionPiece& piece, const void* keys,
                        const void* values, const void* mask) const {
    const PieceProducts& products = products_.at(KindOf(piece));
    void* scores = At(run.workspace, scores_offset_);
    void* library = At(run.workspace, library_offset_);
    if (products.scores == nullptr) {
      SpreadAddend zeros;
      zeros.y = scores;
      zeros.rows = piece.samples * piece.heads * sizes_.group() * piece.queries;
      zeros.columns = sizes_.total();
      WEFT_RETURN_IF_ERROR(LaunchStatus(
          LaunchSpreadAddend(QueueOf(run), sizes_.score_dtype(), zeros), "scores of zero"));
    } else {
      ProductOperands operands;
      operands.a = At(run.inputs[kQuery], Bytes(QueryOffset(piece)));
      operands.b = At(keys, Bytes(KeyOffset(piece)));
      operands.y = scores;
      WEFT_RETURN_IF_ERROR(products.scores->Run(operands, library, QueueOf(run)));
    }
    WEFT_RETURN_IF_ERROR(LaunchStatus(
        LaunchAttentionSoftmax(QueueOf(run), sizes_.dtype, SoftmaxOf(run, piece, mask)),
        "the softmax of attention"));
    if (products.values == nullptr) return absl::OkStatus();
    ProductOperands operands;
    operands.a = At(run.workspace, probabilities_offset_);
    operands.b = At(values, Bytes(ValueOffset(piece)));
    operands.y = At(run.outputs[kY], Bytes(YOffset(piece)));
    return products.values->Run(operands, library, QueueOf(run));
  }

  AttentionSoftmax SoftmaxOf(const KernelContext& run, const AttentionPiece& piece,
                             const void* mask) const {
    AttentionSoftmax softmax;
    softmax.scores = At(run.workspace, scores_offset_);
    softmax.probabilities = At(run.workspace, probabilities_offset_);
    softmax.stage_output = wants_scores_ ? run.outputs[kScores] : nullptr;
    softmax.stage = stage_;
    softmax.mask = mask;
    std::copy(mask_strides_, mask_strides_ + 4, softmax.mask_strides);
    softmax.keys = sizes_.attended;
    if (has_lengths_) {
      softmax.keys.lengths = static_cast<const int64_t*>(run.inputs[kValidLengths]);
      softmax.lengths_fault = {run.stream->fault(), source_.c_str(), 0, sizes_.total() + 1};
    }
    softmax.softcap = softcap_;
    softmax.all_heads = sizes_.q_heads;
    softmax.first_sample = piece.first_sample;
    softmax.samples = piece.samples;
    softmax.first_head = piece.first_head * sizes_.group();
    softmax.heads = piece.heads * sizes_.group();
    softmax.first_query = piece.first_query;
    softmax.queries = piece.queries;
    return softmax;
  }

  const AttentionSizes sizes_;
  const std::string source_;
  const int64_t score_bytes_;
  const bool has_mask_;
  const DType mask_dtype_;
  const bool has_lengths_;
  const bool wants_scores_;
  const double softcap_;
  const ScoresStage stage_;
  bool wants_present_[2] = {false, false};
  bool tf32_ = false;
  int64_t mask_elements_ = 0;
  int64_t mask_strides_[4] = {};
  bool joins_[2] = {false, false};
  size_t joined_offsets_[2] = {0, 0};
  HeadLayout q_layout_, k_layout_, v_layout_, y_layout_;
  std::vector<AttentionPiece> pieces_;
  std::map<Kind, PieceProducts> products_;
  WorkspaceLayout layout_;
  size_t mask_offset_ = 0, scores_offset_ = 0, probabilities_offset_ = 0, library_offset_ = 0;
};

absl::StatusOr<std::unique_ptr<Kernel>> PrepareAttention(const PrepareContext& context) {
  return MakeAttention(context, kScoreBytes);
}

}  // namespace

absl::StatusOr<std::unique_ptr<Kernel>> MakeAttention(const PrepareContext& context,
                                                      int64_t score_bytes) {
  WEFT_RETURN_IF_ERROR(CheckAttentionTypes(context));
  WEFT_ASSIGN_OR_RETURN(std::unique_ptr<Kernel> through_cudnn, MakeDnnAttention(context));
  if (through_cudnn != nullptr) return through_cudnn;
  auto kernel = std::make_unique<AttentionKernel>(context, score_bytes);
  WEFT_RETURN_IF_ERROR(kernel->Prepare(context));
  return kernel;
}

WEFT_REGISTER_KERNEL("", "Attention", DeviceKind::kCuda, PrepareAttention);

}  // namespace weft::cuda
