#include "ops/kernels/cpu/attention/panel_operands.h"

#include <algorithm>
#include <limits>
#include <type_traits>

#include "ops/kernels/cpu/blocks/operand.h"

namespace weft::cpu {
namespace {

template <typename T>
void LoadMaskOf(const void* mask, int64_t offset, int64_t stride, int64_t count, float* to) {
  const T* from = static_cast<const T*>(mask) + offset;
  for (int64_t i = 0; i < count; ++i) {
    if constexpr (std::is_same_v<T, bool>) {
      to[i] = from[i * stride] ? 0.0f : -std::numeric_limits<float>::infinity();
    } else {
      to[i] = static_cast<float>(Load(from[i * stride]));
    }
  }
}

LoadMask LoaderOf(DType dtype, int64_t stride) {
  if (dtype == DType::kFloat32 && stride == 1) return nullptr;
  if (dtype == DType::kBool) return LoadMaskOf<bool>;
  LoadMask load = nullptr;
  DispatchDType(dtype, [&](auto zero) { load = LoadMaskOf<decltype(zero)>; });
  return load;
}

}  // namespace

PanelRowsOf::PanelRowsOf(const AttentionPlan& plan, DType mask_dtype) : plan_(&plan) {
  if (plan.has_mask) load_mask_ = LoaderOf(mask_dtype, plan.mask_strides[3]);
}

QueryPlace PanelRowsOf::PlaceOf(int64_t head, int64_t row) const {
  const AttentionPlan& plan = *plan_;
  return {head / plan.kv_heads, head % plan.kv_heads * plan.group() + row / plan.queries,
          row % plan.queries};
}

HeadRows PanelRowsOf::HeadOf(const float* operand, int64_t head, int64_t size) const {
  const AttentionPlan& plan = *plan_;
  const int64_t first =
      plan.Row(plan.kv_heads, plan.keys, size, head / plan.kv_heads, head % plan.kv_heads, 0);
  return {operand + first, plan.packed ? plan.kv_heads * size : size};
}

HeadRows PanelRowsOf::JoinedHeadOf(const float* operand, int64_t head, int64_t size) const {
  return {operand + head * plan_->total * size, size};
}

void PanelRowsOf::SetPanel(const float* query, const void* mask, const int64_t* lengths,
                           int64_t head, int64_t index, AttentionPanel& panel,
                           QueryPlace* places) const {
  const AttentionPlan& plan = *plan_;
  const int64_t first = index * PanelRows();
  panel.rows = static_cast<int>(std::min<int64_t>(PanelRows(), rows() - first));
  panel.key_size = plan.key_size;
  panel.value_size = plan.value_size;
  panel.scale = plan.scale;
  panel.softcap = plan.softcap;
  panel.mask = plan.has_mask ? mask : nullptr;
  panel.load_mask = load_mask_;
  panel.mask_stride = plan.mask_strides[3];
  QueryPlace at = PlaceOf(head, first);
  for (int r = 0; r < panel.rows; ++r) {
    places[r] = at;
    panel.queries[r] = query + QueryRow(at, plan.key_size);
    const KeyRange range = plan.KeysOf(lengths, at.b, at.query);
    panel.begin[r] = static_cast<int32_t>(range.begin);
    panel.end[r] = static_cast<int32_t>(range.end);
    if (plan.has_mask) panel.mask_rows[r] = plan.MaskRow(at.b, at.h, at.query);
    if (++at.query == plan.queries) {
      at.query = 0;
      ++at.h;
    }
  }
}

}  // namespace weft::cpu
