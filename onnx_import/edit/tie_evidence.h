// TieEvidence: what a file itself says of readers of one tensor: one parameter, or several that the
// exporter has merged.
#ifndef WEFT_ONNX_IMPORT_EDIT_TIE_EVIDENCE_H_
#define WEFT_ONNX_IMPORT_EDIT_TIE_EVIDENCE_H_

#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "onnx_import/edit/tensor_uses.h"
#include "onnx_import/edit/tensor_values.h"
#include "onnx_import/edit/use_groups.h"

namespace weft {

// Where a file comes from PyTorch, it tells ties from accidents, whatever the values:
//
//  * torch.export calls a parameter by the last of its names in the graph signature. It merges
//    equal parameters under the name of the first. So of the names that the readers' modules have
//    for a tensor, those before its own are the same parameter, and those behind it are others.
//  * TorchScript calls a parameter by its first name. It merges equal parameters by Identity nodes,
//    which have the names of the others.
//
// A tensor with a made-up name (transposed, say) says nothing itself. Then the other tensors of the
// same two modules decide, or those of the layers that the modules are in: deep copies of a layer
// are apart in all their parameters. Layers whose only witnesses are tensors of equal elements are
// taken for copies if they share every weight.
//
// Linear in the file, times logarithms: what is asked of a module or layer is counted once. Borrows
// all. Not thread-safe.
class TieEvidence {
 public:
  TieEvidence(const TensorUses& uses, TensorValues& values, UseGroups& groups);

  // The groups of a tensor (UseGroups::Of).
  const std::vector<UseGroup>& GroupsOf(int tensor);
  // By group: a number that groups of one parameter share; -1 where nothing is known of a group,
  // and for running statistics and for uses that are no parameter's. Empty where nothing is known
  // of any. Nothing is for a tensor with a made-up name that stored weights multiply: it is their
  // input.
  std::vector<int> ParametersOf(int tensor);
  // Whether two modules that read equal tensors read one parameter; nothing where nobody says it.
  std::optional<bool> AreOne(const std::string& module, const std::string& other);
  // Whether two modules, or the layers that they are in, have equal parameters that are two each
  // and whose elements differ: one began as a copy of the other.
  bool AreCopies(const std::string& module, const std::string& other) const;
  // TensorUses::WeightReadersOf, counted once.
  const std::set<std::string>& WeightReadersOf(int tensor);
  // Whether the parameters that `module` lacks in the file are others than `parameter`, of which it
  // reads a copy.
  bool IsOfAnother(const std::string& parameter, const std::string& module);
  // Whether an exporter took the name from the module: it is no name of something computed.
  bool IsParameterName(const std::string& name) const;

 private:
  // What tensors say of two modules, or of two layers that they are in.
  struct Witnesses {
    int one[2] = {0, 0};  // by whether the elements differ
    int merged[2] = {0, 0};
  };
  using Modules = std::pair<std::string, std::string>;
  // The parameters of the signature in a module that no tensor of the file is called by.
  struct Lost {
    int first = -1;  // in the signature's order
    int count = 0;   // all of its parts, too; for the module "" only those in no part
  };

  void Listen();
  std::vector<int> NamedParametersOf(int tensor);
  // Whether all that reads the tensor multiplies it by a stored weight: it is what the exporter
  // computed for all of them, and no layer's weight.
  bool IsDataOfProducts(int tensor) const;
  // In a file of torch.export.
  std::vector<int> BySignature(int tensor);
  // The name that the signature has for what the group reads, if the tensor is called `name`; "".
  std::string NameIn(const UseGroup& group, const std::string& name, const std::string& suffix);
  // Two groups of one module have one name, and the module has other parameters without a tensor.
  void LeaveOutDoubtful(const std::vector<UseGroup>& groups, std::vector<std::string>& names);
  const Lost& LostOf(const std::string& module);
  void Record(int tensor, const std::vector<int>& parameters);
  std::optional<bool> Verdict(const std::map<Modules, Witnesses>& witnesses, const Modules& modules,
                              bool are_layers);
  // The weights that a layer and its parts read.
  const std::set<int>& WeightsOf(const std::string& layer);
  int OrderOf(const std::string& name) const;

  const TensorUses& uses_;
  TensorValues& values_;
  UseGroups& groups_;
  std::map<std::string, int> order_;  // of the signature's parameters
  std::map<int, std::vector<UseGroup>> known_groups_;
  std::map<Modules, Witnesses> of_modules_;
  std::map<Modules, Witnesses> of_layers_;
  std::map<std::string, std::set<int>> weights_of_;        // by module
  std::map<std::string, std::set<int>> weights_of_layer_;  // WeightsOf
  std::map<std::string, Lost> lost_of_;
  std::map<int, std::set<std::string>> weight_readers_;
};

}  // namespace weft

#endif  // WEFT_ONNX_IMPORT_EDIT_TIE_EVIDENCE_H_
