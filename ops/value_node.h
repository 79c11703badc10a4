// ValueNode: one node that is run on values at run time, whatever their kinds and shapes.
#ifndef WEFT_OPS_VALUE_NODE_H_
#define WEFT_OPS_VALUE_NODE_H_

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "graph/graph.h"
#include "ops/concrete_node.h"
#include "ops/kernel.h"
#include "ops/value_kernel.h"
#include "tensor/value.h"

namespace weft {

// Runs graphs that lie in attributes of nodes; implemented by executor/.
class BodyRunner {
 public:
  virtual ~BodyRunner() = default;
  // One value per input of the body; gives one per output. The body must outlive the runner.
  virtual absl::StatusOr<std::vector<Value>> RunBody(const Graph& body,
                                                     std::vector<Value> inputs) = 0;
};

// Whether a node that no kernel of the device takes can be run on values: it has a ValueKernel,
// only moves or compares elements, or expands into nodes that can.
bool RunsOnValues(const Node& node);

// Infers, prepares and runs in one go: with the numeric kernel when the operands are tensors of
// numbers and their shapes and values say the output's shape; else with the ValueKernel; else, when
// the op only moves elements, on codes of them (element_codes.h). Prepared kernels are kept for
// operands of the same types. On the host; used by one thread at a time.
class ValueNode {
 public:
  struct Settings {
    const KernelRegistry* kernels = nullptr;  // null = KernelRegistry::Global()
    int threads = 1;
    bool strict = false;
    BodyRunner* bodies = nullptr;  // null: what has bodies is Unimplemented
  };
  // Borrows the node.
  ValueNode(const Node& node, const Settings& settings) : node_(node), settings_(settings) {}
  ValueNode(const ValueNode&) = delete;
  ValueNode& operator=(const ValueNode&) = delete;

  // `inputs` has one value per input of the node, an invalid tensor where it is omitted. Gives one
  // value per output, an invalid tensor where it is not wanted; they may share memory with the
  // inputs. InvalidArgument when the operands do not fit, Unimplemented when nothing computes them.
  absl::StatusOr<std::vector<Value>> Run(std::vector<Value> inputs);

  const Node& node() const { return node_; }

 private:
  // A kernel prepared for operands of certain types and, of value inputs, contents.
  struct Prepared {
    std::string key;
    std::unique_ptr<ConcreteNode> node;
    std::unique_ptr<Kernel> kernel;
  };

  absl::Status CheckInputs(const std::vector<Value>& inputs) const;
  bool HasKernel() const;
  absl::StatusOr<std::vector<Value>> RunChecked(std::vector<Value> inputs);
  absl::StatusOr<std::vector<Value>> RunExpanded(std::vector<Value> inputs);
  // The expansion's own error where it refuses operands of these types: a body that keeps the node
  // would end up here again.
  absl::Status CheckExpands(const std::vector<Value>& given);
  absl::StatusOr<std::vector<Value>> RunValueKernel(const ValueKernel& kernel,
                                                    std::vector<Value> inputs);
  absl::StatusOr<std::vector<Value>> RunOnCodes(const std::vector<Tensor>& inputs);
  absl::StatusOr<std::vector<Tensor>> RunOnTensors(const std::vector<Tensor>& inputs);
  absl::StatusOr<std::vector<Tensor>> RunPrepared(const Prepared& prepared,
                                                  const std::vector<Tensor>& inputs);
  std::string KeyOf(const std::vector<Tensor>& inputs) const;

  const Node& node_;
  const Settings settings_;
  std::unique_ptr<Stream> stream_;
  std::shared_ptr<Graph> expanded_;  // the node alone, for its expansion
  std::string expandable_types_;     // for which it was seen to expand last
  std::vector<Prepared> prepared_;   // the last one used first
};

}  // namespace weft

#endif  // WEFT_OPS_VALUE_NODE_H_
