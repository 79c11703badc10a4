#include "ops/kernels/cpu/blocks/onednn.h"

#include <omp.h>

#include <string_view>

#include "absl/strings/str_cat.h"
#include "platform/mapped_pages.h"
#include "platform/status_macros.h"

namespace weft::cpu {
namespace {

// Whether the primitive is computed by oneDNN's classic matrix product ("gemm:jit"; the newer one
// is "brg...", and recurrent layers use both).
bool UsesClassicProduct(const dnnl::primitive& primitive) {
  const_dnnl_primitive_desc_t description = nullptr;
  const char* name = nullptr;
  const bool is_known =
      primitive.get(true) != nullptr &&
      dnnl_primitive_get_primitive_desc(primitive.get(), &description) == dnnl_success &&
      dnnl_primitive_desc_query(description, dnnl_query_impl_info_str, 0, &name) == dnnl_success;
  if (!is_known || name == nullptr) return false;
  return primitive.get_kind() == dnnl::primitive::kind::rnn ||
         std::string_view(name).find("gemm") != std::string_view::npos;
}

}  // namespace

void MakeClassicProductCode() {
  static const bool kMade = [] {
    constexpr dnnl_dim_t kRows = 5, kColumns = 7, kDepth = 9;
    const float factors[kDepth * kDepth] = {};
    float product[kRows * kColumns];
    return dnnl_sgemm('N', 'N', kRows, kColumns, kDepth, 1.0f, factors, kDepth, factors, kColumns,
                      0.0f, product, kColumns) == dnnl_success;
  }();
  static_cast<void>(kMade);  // where it fails, the first run makes it
}

const dnnl::engine& OnednnEngine() {
  static const dnnl::engine* const engine = new dnnl::engine(dnnl::engine::kind::cpu, 0);
  return *engine;
}

dnnl::stream& OnednnStream() {
  static dnnl::stream* const stream = new dnnl::stream(OnednnEngine());
  return *stream;
}

int OnednnThreads(const PrepareContext& context) {
  return context.strict() ? 1 : context.threads();
}

ThreadBudget::ThreadBudget(int threads)
    : saved_(omp_get_max_threads()), changed_(saved_ != threads) {
  if (changed_) omp_set_num_threads(threads);
}

ThreadBudget::~ThreadBudget() {
  if (changed_) omp_set_num_threads(saved_);
}

bool OnednnMultipliesBfloat16() {
  static const bool kMultiplies = [] {
    const auto has = static_cast<unsigned>(dnnl::get_effective_cpu_isa());
    const auto wanted = static_cast<unsigned>(dnnl::cpu_isa::avx512_core_bf16);
    return (has & wanted) == wanted;
  }();
  return kMultiplies;
}

dnnl::memory::data_type OnednnType(DType dtype) {
  return dtype == DType::kBfloat16 ? dnnl::memory::data_type::bf16 : dnnl::memory::data_type::f32;
}

dnnl::primitive_attr UserScratchpad() {
  dnnl::primitive_attr attributes;
  attributes.set_scratchpad_mode(dnnl::scratchpad_mode::user);
  return attributes;
}

dnnl::memory::dims ToDims(const Shape& shape) {
  return dnnl::memory::dims(shape.dims().begin(), shape.dims().end());
}

dnnl::memory::desc PlainDesc(const Shape& shape, dnnl::memory::data_type type) {
  const auto strides = shape.Strides();
  return dnnl::memory::desc(ToDims(shape), type,
                            dnnl::memory::dims(strides.begin(), strides.end()));
}

OnednnCall::OnednnCall(dnnl::primitive primitive, const std::vector<Argument>& arguments)
    : primitive_(std::move(primitive)) {
  if (UsesClassicProduct(primitive_)) MakeClassicProductCode();
  for (const Argument& argument : arguments) {
    memories_.push_back(dnnl::memory(argument.second, OnednnEngine(), DNNL_MEMORY_NONE));
    arguments_.push_back({argument.first, memories_.back().get()});
  }
  bound_.assign(arguments.size(), nullptr);
}

absl::Status OnednnCall::Run(std::span<const void* const> pointers) {
  size_t i = 0;
  for (const void* pointer : pointers) {
    if (pointer != bound_[i]) {
      const dnnl_status_t status =
          dnnl_memory_set_data_handle_v2(arguments_[i].memory, const_cast<void*>(pointer), nullptr);
      if (status != dnnl_success) {
        return absl::InternalError(absl::StrCat("oneDNN takes no pointer, status ", status));
      }
      bound_[i] = pointer;
    }
    ++i;
  }
  const dnnl_status_t status =
      dnnl_primitive_execute(primitive_.get(), OnednnStream().get(),
                             static_cast<int>(arguments_.size()), arguments_.data());
  if (status == dnnl_success) return absl::OkStatus();
  return absl::InternalError(absl::StrCat("a primitive of oneDNN failed with status ", status));
}

OnednnReorder::OnednnReorder(const dnnl::memory::desc& from, const dnnl::memory::desc& to) {
  if (from == to) return;
  dnnl::primitive_attr attributes;
  const dnnl::reorder::primitive_desc reorder(OnednnEngine(), from, OnednnEngine(), to, attributes);
  call_ = OnednnCall(dnnl::reorder(reorder), {{DNNL_ARG_FROM, from}, {DNNL_ARG_TO, to}});
}

absl::StatusOr<PackedWeights> PackedWeights::Create(const dnnl::memory::desc& plain,
                                                    const dnnl::memory::desc& packed) {
  PackedWeights weights;
  weights.plain_bytes_ = plain.get_size();
  weights.reorder_ = OnednnReorder(plain, packed);
  if (weights.reorder_.needed()) {
    WEFT_ASSIGN_OR_RETURN(
        weights.storage_,
        Tensor::Allocate(DType::kUint8, Shape{static_cast<int64_t>(packed.get_size())}));
  }
  return weights;
}

absl::StatusOr<const void*> PackedWeights::Get(const void* plain) {
  if (!reorder_.needed()) return plain;
  if (!filled_) {
    WEFT_RETURN_IF_ERROR(reorder_.Run(plain, storage_.raw_data()));
    ReleaseMappedPages({static_cast<const std::byte*>(plain), plain_bytes_});
    filled_ = true;
  }
  return static_cast<const void*>(storage_.raw_data());
}

}  // namespace weft::cpu
