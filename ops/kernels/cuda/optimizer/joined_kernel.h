// Kernels that can run as one: a table of items, one for each node. For the factories of this
// folder.
#ifndef WEFT_OPS_KERNELS_CUDA_OPTIMIZER_JOINED_KERNEL_H_
#define WEFT_OPS_KERNELS_CUDA_OPTIMIZER_JOINED_KERNEL_H_

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "ops/kernel.h"

namespace weft::cuda {

// The kernel of one node, or of several with equal keys (JoinableKernel::Join). A Part is one node:
//
//   using Item = ...;                  what a launch gets for it
//   std::string key;                   JoinableKernel::group_key; begins with the name of its own
//   launch int num_inputs, num_outputs;       of the node Item ItemOf(const void* const* inputs,
//   void* const* outputs) const; absl::Status Launch(const KernelContext&, const Item* items, int
//   count) const;
//                                      runs items of its key, its own or others'
template <class Part>
class JoinedKernel final : public JoinableKernel {
 public:
  explicit JoinedKernel(std::vector<std::shared_ptr<const Part>> parts)
      : parts_(std::move(parts)), items_(parts_.size()) {}

  absl::Status Run(const KernelContext& context) override {
    const void* const* inputs = context.inputs;
    void* const* outputs = context.outputs;
    for (size_t i = 0; i < parts_.size(); ++i) {
      items_[i] = parts_[i]->ItemOf(inputs, outputs);
      inputs += parts_[i]->num_inputs;
      outputs += parts_[i]->num_outputs;
    }
    return parts_.front()->Launch(context, items_.data(), static_cast<int>(items_.size()));
  }

  std::string group_key() const override { return parts_.front()->key; }

  absl::StatusOr<std::unique_ptr<Kernel>> Join(
      const std::vector<JoinableKernel*>& members) const override {
    std::vector<std::shared_ptr<const Part>> parts;
    for (const JoinableKernel* const member : members) {
      const auto* const joined = dynamic_cast<const JoinedKernel*>(member);
      if (joined == nullptr || joined->group_key() != group_key()) {
        return absl::InternalError(absl::StrCat("a kernel of key '", member->group_key(),
                                                "' cannot run as one with those of '", group_key(),
                                                "'"));
      }
      parts.insert(parts.end(), joined->parts_.begin(), joined->parts_.end());
    }
    return std::make_unique<JoinedKernel>(std::move(parts));
  }

 private:
  const std::vector<std::shared_ptr<const Part>> parts_;
  std::vector<typename Part::Item> items_;
};

// The kernel of one node.
template <class Part>
std::unique_ptr<Kernel> NewJoinedKernel(Part part) {
  return std::make_unique<JoinedKernel<Part>>(
      std::vector<std::shared_ptr<const Part>>{std::make_shared<const Part>(std::move(part))});
}

}  // namespace weft::cuda

#endif  // WEFT_OPS_KERNELS_CUDA_OPTIMIZER_JOINED_KERNEL_H_
