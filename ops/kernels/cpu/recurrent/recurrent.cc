#include "ops/kernels/cpu/recurrent/recurrent.h"

#include <cmath>
#include <cstring>
#include <type_traits>

#include "absl/strings/str_cat.h"
#include "ops/kernels/cpu/recurrent/recurrent_simd.h"

namespace weft::cpu {

RecurrentGeometry RecurrentGeometryOf(const PrepareContext& context, int64_t gate_count) {
  const Shape& x = context.InputShape(kRecurrentX);
  const Shape& r = context.InputShape(kRecurrentR);
  RecurrentGeometry geometry;
  geometry.batch_first = context.attributes().Int("layout", 0) == 1;
  geometry.time = x.dim(geometry.batch_first ? 1 : 0);
  geometry.batch = x.dim(geometry.batch_first ? 0 : 1);
  geometry.input = x.dim(2);
  geometry.hidden = r.dim(2);
  geometry.gate_count = gate_count;
  geometry.directions = r.dim(0);
  return geometry;
}

GateProduct<float>::GateProduct(int64_t m, int64_t n, int64_t k, const GateProductOptions& options,
                                WorkspaceLayout& layout)
    : m_(m), n_(n), threads_(options.threads) {
  if (m == 0 || n == 0 || k == 0) return;
  constexpr double kFlopsPerNanosecond = 60;
  constexpr int64_t kGrain = 64;
  const double nanoseconds =
      2 * static_cast<double>(m * n) * static_cast<double>(k) / kFlopsPerNanosecond;
  const int wanted = 2 * UsefulThreads(threads_, n / kGrain, nanoseconds * kGrain / n);
  const int64_t parts = wanted == 2 ? 1 : wanted;
  const int64_t columns = ((n + parts - 1) / parts + kGrain - 1) / kGrain * kGrain;
  const ThreadBudget budget(1);
  for (int64_t first = 0; first < n && status_.ok(); first += columns) {
    status_ = AddPart(first, std::min(columns, n - first), k, options, layout);
  }
}

absl::Status GateProduct<float>::AddPart(int64_t first, int64_t columns, int64_t k,
                                         const GateProductOptions& options,
                                         WorkspaceLayout& layout) {
  const auto f32 = dnnl::memory::data_type::f32;
  using Desc = dnnl::memory::desc;
  using Dims = dnnl::memory::dims;
  const bool transposed = options.stored == Stored::kTransposed;
  const Desc a = PlainDesc(Shape{m_, k});
  const Desc any({k, columns}, f32, dnnl::memory::format_tag::any);
  const Desc y({m_, columns}, f32, Dims{n_, 1});
  const Desc bias = PlainDesc(Shape{1, columns});
  const Desc stored({k, columns}, f32, transposed ? Dims{1, k} : Dims{n_, 1});
  const dnnl::matmul::primitive_desc primitive(
      options.bias ? dnnl::matmul::desc(a, any, bias, y) : dnnl::matmul::desc(a, any, y),
      UserScratchpad(), OnednnEngine());
  const Desc packed = primitive.weights_desc();
  Part& part = parts_.emplace_back();
  part.first = first;
  part.offset = static_cast<size_t>(transposed ? first * k : first);
  part.plain_bytes = stored.get_size();
  part.reorder = OnednnReorder(stored, packed);
  if (options.constants > 0 && part.reorder.needed()) {
    for (int64_t i = 0; i < options.constants; ++i) {
      WEFT_ASSIGN_OR_RETURN(PackedWeights weights, PackedWeights::Create(stored, packed));
      part.constants.push_back(std::move(weights));
    }
  } else {
    part.weights = layout.Add(packed.get_size());
  }
  part.scratchpad = layout.Add(primitive.scratchpad_desc().get_size());
  std::vector<OnednnCall::Argument> arguments = {
      {DNNL_ARG_SRC, a},
      {DNNL_ARG_WEIGHTS, packed},
      {DNNL_ARG_DST, y},
      {DNNL_ARG_SCRATCHPAD, primitive.scratchpad_desc()}};
  if (options.bias) arguments.push_back({DNNL_ARG_BIAS, bias});
  part.call = OnednnCall(dnnl::matmul(primitive), arguments);
  return absl::OkStatus();
}

absl::Status GateProduct<float>::Pack(const float* b, int64_t which, void* workspace) {
  WEFT_RETURN_IF_ERROR(status_);
  const ThreadBudget budget(1);
  for (Part& part : parts_) {
    const float* const plain = b + part.offset;
    if (!part.constants.empty()) {
      WEFT_ASSIGN_OR_RETURN(part.packed, part.constants[which].Get(plain));
      continue;
    }
    void* const weights = At(workspace, part.weights);
    part.packed = weights;
    if (part.reorder.needed()) {
      WEFT_RETURN_IF_ERROR(part.reorder.Run(plain, weights));
    } else {
      std::memcpy(weights, plain, part.plain_bytes);
    }
  }
  return absl::OkStatus();
}

absl::Status GateProduct<float>::Run(const float* a, const float* bias, float* y, void* workspace) {
  if (parts_.empty()) {
    for (int64_t i = 0; i < m_ * n_; ++i) y[i] = bias == nullptr ? 0.0f : bias[i % n_];
    return absl::OkStatus();
  }
  const int64_t count = static_cast<int64_t>(parts_.size());
  ParallelFor(threads_, count, kNanosecondsPerThread, 1, [&](int64_t begin, int64_t end) {
    const ThreadBudget budget(1);
    for (int64_t i = begin; i < end; ++i) {
      parts_[i].status = RunPart(parts_[i], a, bias, y, workspace);
    }
  });
  for (const Part& part : parts_) WEFT_RETURN_IF_ERROR(part.status);
  return absl::OkStatus();
}

absl::Status GateProduct<float>::RunPart(Part& part, const float* a, const float* bias, float* y,
                                         void* workspace) {
  const void* const scratchpad = At(workspace, part.scratchpad);
  if (bias == nullptr) return part.call.Run({a, part.packed, y + part.first, scratchpad});
  return part.call.Run({a, part.packed, y + part.first, scratchpad, bias + part.first});
}

size_t GateProduct<float>::retained_bytes() const {
  size_t bytes = 0;
  for (const Part& part : parts_) {
    for (const PackedWeights& weights : part.constants) bytes += weights.bytes();
  }
  return bytes;
}

absl::Status GateProduct<double>::Run(const double* a, const double* bias, double* y, void*) {
  for (int64_t i = 0; i < m_; ++i) {
    for (int64_t j = 0; j < n_; ++j) {
      double sum = bias == nullptr ? 0.0 : bias[j];
      for (int64_t k = 0; k < k_; ++k) {
        sum += a[i * k_ + k] * b_[stored_ == Stored::kPlain ? k * n_ + j : j * k_ + k];
      }
      y[i * n_ + j] = sum;
    }
  }
  return absl::OkStatus();
}

absl::Status CheckSequenceLengths(const std::string& node, const std::string& op,
                                  const int32_t* lengths, int64_t batch, int64_t time) {
  for (int64_t b = 0; b < batch; ++b) {
    if (lengths[b] >= 0 && lengths[b] <= time) continue;
    return absl::InvalidArgumentError(absl::StrCat("node '", node, "' (", op, "): sequence_lens[",
                                                   b, "] is ", lengths[b], ", X has ", time,
                                                   " steps"));
  }
  return absl::OkStatus();
}

template <typename S>
void Activate(const Activation& activation, double clip, S* values, int64_t count) {
  if (clip > 0) {
    const S limit = static_cast<S>(clip);
    for (int64_t i = 0; i < count; ++i) values[i] = std::clamp(values[i], -limit, limit);
  }
  if constexpr (std::is_same_v<S, float>) {
    if (activation.kind == ActivationKind::kSigmoid) return SigmoidInPlace(values, count);
    if (activation.kind == ActivationKind::kTanh) return TanhInPlace(values, count);
  }
  switch (activation.kind) {
    case ActivationKind::kSigmoid:
      for (int64_t i = 0; i < count; ++i) values[i] = S(1) / (S(1) + std::exp(-values[i]));
      return;
    case ActivationKind::kTanh:
      for (int64_t i = 0; i < count; ++i) values[i] = std::tanh(values[i]);
      return;
    case ActivationKind::kRelu:
      for (int64_t i = 0; i < count; ++i) values[i] = std::max(values[i], S(0));
      return;
    default:
      for (int64_t i = 0; i < count; ++i) values[i] = static_cast<S>(activation(values[i]));
  }
}

template <typename S>
void MultiplyBySlopes(const Activation& activation, double clip, const S* kept, int64_t count,
                      S* gradient) {
  if (KeepsActivated(activation, clip)) {
    const bool is_tanh = activation.kind == ActivationKind::kTanh;
    for (int64_t i = 0; i < count && is_tanh; ++i) gradient[i] *= S(1) - kept[i] * kept[i];
    for (int64_t i = 0; i < count && !is_tanh; ++i) gradient[i] *= kept[i] * (S(1) - kept[i]);
    return;
  }
  for (int64_t i = 0; i < count; ++i) {
    const bool limited = clip > 0 && std::abs(static_cast<double>(kept[i])) > clip;
    gradient[i] *= limited ? S(0) : static_cast<S>(activation.Slope(kept[i]));
  }
}

template void MultiplyBySlopes<float>(const Activation&, double, const float*, int64_t, float*);
template void MultiplyBySlopes<double>(const Activation&, double, const double*, int64_t, double*);

absl::StatusOr<std::vector<Activation>> ActivationsOf(const PrepareContext& context,
                                                      const std::vector<std::string>& fallback,
                                                      int64_t directions) {
  Attributes attributes = context.attributes();
  std::vector<std::string> names = attributes.Strings("activations");
  const size_t wanted = fallback.size() * static_cast<size_t>(directions);
  // RNN's default in ONNX names two, whatever the number of directions.
  if (fallback.size() == 1 && names.size() > wanted) {
    names.resize(wanted);
    attributes.Set("activations", names);
  }
  auto activations = ReadActivations(attributes, fallback, static_cast<int>(directions));
  if (activations.ok()) return activations;
  return context.InvalidArgument(std::string(activations.status().message()));
}

template void Activate<float>(const Activation&, double, float*, int64_t);
template void Activate<double>(const Activation&, double, double*, int64_t);

}  // namespace weft::cpu
