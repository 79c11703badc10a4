// Paths of modules, as PyTorch has them, for the weights of a model.
#ifndef WEFT_TRAINING_ADAPTERS_MODULE_NAMES_H_
#define WEFT_TRAINING_ADAPTERS_MODULE_NAMES_H_

#include <map>
#include <set>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "graph/graph.h"
#include "training/adapters/lora.h"

namespace weft {

// The path that a name of a weight says: "/h.0/attn/weight" is of "h.0.attn".
std::string ModulePath(const std::string& name);

// Finds weights by module. Borrows the graph, whose variables must stay.
class ModuleNames {
 public:
  explicit ModuleNames(const Graph& graph);

  // The weight of a module: by its own name, else by one of its other names. InvalidArgument naming
  // `file`, with a near name where there is none, and with the candidates where there are several.
  absl::StatusOr<const Variable*> Find(const std::string& module, const std::string& file) const;

 private:
  std::map<std::string, const Variable*> by_own_name_;
  std::map<std::string, std::set<const Variable*>> by_other_name_;
};

// The module of each adapted weight, by the weight's name, each another one: that of its own name
// if this ends in ".weight", else that of another name that does, else its own name.
std::map<std::string, std::string> ModulesOfAdapters(const Graph& graph,
                                                     const std::vector<LoraAdapter>& adapters);

}  // namespace weft

#endif  // WEFT_TRAINING_ADAPTERS_MODULE_NAMES_H_
