// PlanUntying: which shared tensors exporters have merged, and a tensor of its own for each module.
#ifndef WEFT_ONNX_IMPORT_EDIT_UNTIE_H_
#define WEFT_ONNX_IMPORT_EDIT_UNTIE_H_

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "onnx_import/edit/file_edit.h"
#include "onnx_import/edit/tensor_uses.h"
#include "onnx_import/edit/tensor_values.h"
#include "onnx_import/edit/tie_evidence.h"
#include "onnx_import/edit/tie_report.h"

namespace weft {

// Adds to `edit` what unties shared tensors, and to `report` what that unties and what stays tied.
//
// Where the file says which readers have one parameter (TieEvidence), that decides, else the
// values: A tensor whose elements are all equal (fresh scales and biases, zeroed matrices) is
// untied: exporters merge tensors of equal value. Of one element that says nothing: it is untied
// only where names or weights of their own tell its modules apart. Any other that several modules
// read is a tie of the author's and stays one. Running statistics get a tensor of their own in each
// module, whatever they hold. Modules are told apart by UseGroups; a module that is called several
// times stays one.
//
// `patterns` of names ('*', '?'), of tensors or of modules that read them, untie these tensors
// whatever they hold; "all" unties every tensor,
// "none" only running statistics. InvalidArgument for a pattern that names neither a tensor that
// several modules share nor one of `copies`, on either side; ResourceExhausted where `budget` does
// not suffice.
//
// The module by whose name the tensor is called keeps it, else the first. The others' are called as
// the exporter's Identity node calls them, else after the weight beside them ("fc.weight" gives
// "fc.bias"), the module ("layers.1.norm.weight") or the node ("node_12.B"). The names depend on
// the file alone.
absl::Status PlanUntying(const TensorUses& uses, TensorValues& values, UseGroups& groups,
                         TieEvidence& evidence, const std::vector<std::string>& patterns,
                         const std::vector<CopiedTensor>& copies, CopyBudget& budget,
                         FileEdit& edit, TieReport& report);

}  // namespace weft

#endif  // WEFT_ONNX_IMPORT_EDIT_UNTIE_H_
