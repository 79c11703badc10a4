#include "ops/kernels/cpu/blocks/onednn_staged.h"

#include <algorithm>

#include "ops/kernels/cpu/blocks/parallel.h"
#include "platform/status_macros.h"

namespace weft::cpu {
namespace {

// Shorter pieces would spend their time on oneDNN's calls.
constexpr double kMinNanoseconds = 2 * kNanosecondsPerThread;

// oneDNN 2.6 writes and reads a few bytes past an operand where AVX2 is all there is: the gradient
// of convolution weights with channels that are no multiple of 8. They are spare here.
constexpr size_t kOverrun = kAlignment;

}  // namespace

BatchPieces BatchPieces::For(int threads, const Shape& input, const Shape& output,
                             double nanoseconds, int64_t element_bytes) {
  const int64_t batch = input.dim(0);
  const double all = nanoseconds * static_cast<double>(batch);
  if (threads == 1 || batch < threads || all < threads * kMinNanoseconds) return {threads};
  const auto is_aligned = [&](const Shape& shape, int64_t samples) {
    const int64_t bytes = shape.num_elements() / batch * samples * element_bytes;
    return bytes % static_cast<int64_t>(kAlignment) == 0;
  };
  for (int64_t samples = batch / threads; samples > 0; --samples) {
    const double less = nanoseconds * static_cast<double>(samples - 1);
    if (batch % samples != 0 || less >= kMinNanoseconds) continue;
    if (!is_aligned(input, samples) || !is_aligned(output, samples)) continue;
    return {threads, batch / samples, nanoseconds * static_cast<double>(samples)};
  }
  return {threads};
}

absl::Status StagedPrimitive::AddInput(int index, int argument, const dnnl::memory::desc& plain,
                                       const dnnl::memory::desc& wanted, bool constant) {
  if (constant && pieces_.count == 1) return AddWeights(index, argument, plain, wanted, constant);
  inputs_.push_back({index, arguments_.size(), plain.get_size(), plain, wanted});
  arguments_.push_back({argument, wanted});
  return absl::OkStatus();
}

absl::Status StagedPrimitive::AddWeights(int index, int argument, const dnnl::memory::desc& plain,
                                         const dnnl::memory::desc& wanted, bool constant) {
  Shared& operand = shared_.emplace_back();
  operand.index = index;
  operand.argument = arguments_.size();
  arguments_.push_back({argument, wanted});
  if (constant) {
    operand.packed = true;
    WEFT_ASSIGN_OR_RETURN(operand.weights, PackedWeights::Create(plain, wanted));
    return absl::OkStatus();
  }
  operand.reorder = OnednnReorder(plain, wanted);
  if (operand.reorder.needed()) operand.offset = workspace_.Add(wanted.get_size() + kOverrun);
  return absl::OkStatus();
}

void StagedPrimitive::AddOutput(int index, int argument, const dnnl::memory::desc& plain,
                                const dnnl::memory::desc& wanted) {
  outputs_.push_back({index, arguments_.size(), plain.get_size(), wanted, plain});
  arguments_.push_back({argument, wanted});
}

void StagedPrimitive::SetPrimitive(const dnnl::primitive& primitive,
                                   const dnnl::memory::desc& scratchpad) {
  arguments_.push_back({DNNL_ARG_SCRATCHPAD, scratchpad});
  const auto staging = [&](const Part& part, const dnnl::memory::desc& wanted) {
    Lane::Staging staging{OnednnReorder(part.from, part.to)};
    if (staging.reorder.needed()) staging.offset = workspace_.Add(wanted.get_size() + kOverrun);
    return staging;
  };
  const int64_t threads = pieces_.threads;
  lanes_.resize(static_cast<size_t>(std::min(threads, pieces_.count)));
  for (Lane& lane : lanes_) {
    for (const Part& part : inputs_) lane.inputs.push_back(staging(part, part.to));
    for (const Part& part : outputs_) lane.outputs.push_back(staging(part, part.from));
    lane.scratchpad = workspace_.Add(scratchpad.get_size() + kOverrun);
    lane.pointers.resize(arguments_.size());
    lane.call = OnednnCall(primitive, arguments_);
  }
}

size_t StagedPrimitive::retained_bytes() const {
  size_t bytes = 0;
  for (const Shared& operand : shared_) bytes += operand.weights.bytes();
  return bytes;
}

absl::Status StagedPrimitive::Run(const KernelContext& context) {
  {
    const ThreadBudget budget(pieces_.primitive_threads());
    WEFT_RETURN_IF_ERROR(StageShared(context));
    if (pieces_.count == 1) return RunPiece(context, lanes_.front(), 0);
  }
  ParallelForSlots(static_cast<int>(lanes_.size()), pieces_.count,
                   std::max(pieces_.nanoseconds, kMinNanoseconds), 1,
                   [&](int slot, int64_t begin, int64_t end) {
                     const ThreadBudget budget(1);
                     Lane& lane = lanes_[slot];
                     for (int64_t i = begin; i < end && lane.status.ok(); ++i) {
                       lane.status = RunPiece(context, lane, i);
                     }
                   });
  for (const Lane& lane : lanes_) WEFT_RETURN_IF_ERROR(lane.status);
  return absl::OkStatus();
}

absl::Status StagedPrimitive::StageShared(const KernelContext& context) {
  for (Lane& lane : lanes_) lane.status = absl::OkStatus();
  for (Shared& operand : shared_) {
    const void* plain = context.inputs[operand.index];
    if (operand.packed) {
      WEFT_ASSIGN_OR_RETURN(plain, operand.weights.Get(plain));
    } else if (operand.reorder.needed()) {
      void* const staged = At(context.workspace, operand.offset);
      WEFT_RETURN_IF_ERROR(operand.reorder.Run(plain, staged));
      plain = staged;
    }
    for (Lane& lane : lanes_) lane.pointers[operand.argument] = plain;
  }
  return absl::OkStatus();
}

absl::Status StagedPrimitive::RunPiece(const KernelContext& context, Lane& lane, int64_t piece) {
  for (size_t i = 0; i < inputs_.size(); ++i) {
    const Part& part = inputs_[i];
    const void* plain = static_cast<const char*>(context.inputs[part.index]) +
                        static_cast<size_t>(piece) * part.step;
    if (lane.inputs[i].reorder.needed()) {
      void* const staged = At(context.workspace, lane.inputs[i].offset);
      WEFT_RETURN_IF_ERROR(lane.inputs[i].reorder.Run(plain, staged));
      plain = staged;
    }
    lane.pointers[part.argument] = plain;
  }
  const auto target = [&](const Part& part) {
    return static_cast<char*>(context.outputs[part.index]) + static_cast<size_t>(piece) * part.step;
  };
  for (size_t i = 0; i < outputs_.size(); ++i) {
    lane.pointers[outputs_[i].argument] = lane.outputs[i].reorder.needed()
                                              ? At(context.workspace, lane.outputs[i].offset)
                                              : target(outputs_[i]);
  }
  lane.pointers.back() = At(context.workspace, lane.scratchpad);
  WEFT_RETURN_IF_ERROR(lane.call.Run(lane.pointers));
  for (size_t i = 0; i < outputs_.size(); ++i) {
    if (!lane.outputs[i].reorder.needed()) continue;
    WEFT_RETURN_IF_ERROR(
        lane.outputs[i].reorder.Run(lane.pointers[outputs_[i].argument], target(outputs_[i])));
  }
  return absl::OkStatus();
}

}  // namespace weft::cpu
