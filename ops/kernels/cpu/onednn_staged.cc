#include "ops/kernels/cpu/onednn_staged.h"

#include "platform/status_macros.h"

namespace weft::cpu {

absl::Status StagedPrimitive::AddInput(int index, int argument, const dnnl::memory::desc& plain,
                                       const dnnl::memory::desc& wanted, bool constant) {
  Operand& operand = inputs_.emplace_back(index, arguments_.size());
  arguments_.push_back({argument, wanted});
  if (constant) {
    operand.packed = true;
    WEFT_ASSIGN_OR_RETURN(operand.weights, PackedWeights::Create(plain, wanted));
    return absl::OkStatus();
  }
  operand.reorder = OnednnReorder(plain, wanted);
  if (operand.reorder.needed()) operand.offset = workspace_.Add(wanted.get_size());
  return absl::OkStatus();
}

void StagedPrimitive::AddOutput(int index, int argument, const dnnl::memory::desc& plain,
                                const dnnl::memory::desc& wanted) {
  Operand& operand = outputs_.emplace_back(index, arguments_.size());
  arguments_.push_back({argument, wanted});
  operand.reorder = OnednnReorder(wanted, plain);
  if (operand.reorder.needed()) operand.offset = workspace_.Add(wanted.get_size());
}

void StagedPrimitive::SetPrimitive(const dnnl::primitive& primitive,
                                   const dnnl::memory::desc& scratchpad) {
  scratchpad_ = workspace_.Add(scratchpad.get_size());
  arguments_.push_back({DNNL_ARG_SCRATCHPAD, scratchpad});
  pointers_.resize(arguments_.size());
  call_ = OnednnCall(primitive, arguments_);
}

size_t StagedPrimitive::retained_bytes() const {
  size_t bytes = 0;
  for (const Operand& input : inputs_) bytes += input.weights.bytes();
  return bytes;
}

absl::Status StagedPrimitive::Run(const KernelContext& context) {
  const ThreadBudget budget(threads_);
  for (Operand& input : inputs_) {
    const void* plain = context.inputs[input.index];
    if (input.packed) {
      WEFT_ASSIGN_OR_RETURN(plain, input.weights.Get(plain));
    } else if (input.reorder.needed()) {
      void* const staged = At(context.workspace, input.offset);
      WEFT_RETURN_IF_ERROR(input.reorder.Run(plain, staged));
      plain = staged;
    }
    pointers_[input.argument] = plain;
  }
  for (const Operand& output : outputs_) {
    pointers_[output.argument] = output.reorder.needed() ? At(context.workspace, output.offset)
                                                         : context.outputs[output.index];
  }
  pointers_.back() = At(context.workspace, scratchpad_);
  WEFT_RETURN_IF_ERROR(call_.Run(pointers_));
  for (Operand& output : outputs_) {
    if (!output.reorder.needed()) continue;
    WEFT_RETURN_IF_ERROR(
        output.reorder.Run(pointers_[output.argument], context.outputs[output.index]));
  }
  return absl::OkStatus();
}

}  // namespace weft::cpu
