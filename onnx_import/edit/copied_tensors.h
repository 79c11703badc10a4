// Tensors that hold the same numbers twice: ties that an exporter's constant folding has cut.
#ifndef WEFT_ONNX_IMPORT_EDIT_COPIED_TENSORS_H_
#define WEFT_ONNX_IMPORT_EDIT_COPIED_TENSORS_H_

#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "onnx_import/edit/file_edit.h"
#include "onnx_import/edit/tensor_uses.h"
#include "onnx_import/edit/tensor_values.h"
#include "onnx_import/edit/tie_evidence.h"
#include "onnx_import/edit/tie_report.h"

namespace weft {

// Initializers of rank 2 and more and 64 elements and more, each a weight of some node, whose
// elements are those of another one, or of its transposed. One whose elements are all equal, or of
// less than 1,024 of which most occur again, is no copy of anything. The table of an embedding
// comes first in a pair, then a tensor with a name of its own (not "onnx::MatMul_12" or "val_3"),
// then the first of the file. In the order of the file. Reads eight elements of each tensor, and
// only those whole that agree in them.
std::vector<CopiedTensor> FindCopies(const TensorUses& uses, TensorValues& values);

// By copy: the tensors that one module reads a second time, as a module that is called again does
// where the exporter has transposed its weight for each call.
std::map<int, int> CopiesInOneModule(const TensorUses& uses,
                                     const std::vector<CopiedTensor>& copies);

// Whether the exporter computed the copy from the parameter that the other tensor holds: it has a
// made-up name, and nothing in the file says that it was another parameter with the same numbers.
// Of two with made-up names, something has to say that they were one.
bool IsOneParameter(const TensorUses& uses, const CopiedTensor& copy, TieEvidence& evidence);

// Adds to `edit` what makes `tie.copy` read `tie.tensor`, through a node called as the copy is: a
// Transpose, or an Identity. Frees the copy's own payload.
void TieCopy(const TensorUses& uses, const CopiedTensor& tie, FileEdit& edit);

// The ties of `--tie` ("A=B": B reads A; "auto": all copies). InvalidArgument where a text is none
// of both, A or B is no initializer, the two hold different numbers, or one tensor is tied twice.
absl::StatusOr<std::vector<CopiedTensor>> ParseTies(const TensorUses& uses, TensorValues& values,
                                                    const std::vector<std::string>& texts,
                                                    const std::vector<CopiedTensor>& copies);

}  // namespace weft

#endif  // WEFT_ONNX_IMPORT_EDIT_COPIED_TENSORS_H_
