// FileEdit: changes of an ONNX file's main graph, made on the encoded form.
#ifndef WEFT_ONNX_IMPORT_EDIT_FILE_EDIT_H_
#define WEFT_ONNX_IMPORT_EDIT_FILE_EDIT_H_

#include <cstddef>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "onnx_import/model_file.h"

namespace weft {

// An initializer that has the payload of another tensor of the file.
struct TensorCopy {
  std::string name;
  std::string_view source;  // the other one's encoded TensorProto, in the file's bytes
};

// What changes. Places count the entries of the main graph in the file's order.
struct FileEdit {
  std::set<int> removed_initializers;
  std::set<int> removed_nodes;
  std::map<int, std::vector<std::string>> replaced_nodes;  // encoded NodeProto in a node's place
  std::set<std::string> removed_inputs;                    // of the graph
  std::map<std::pair<int, int>, std::string> renamed;      // what (node, its input) reads instead
  std::vector<TensorCopy> added_initializers;
  std::map<int, std::string> added_inputs;    // by node: what it reads behind its last input
  std::vector<std::string> new_initializers;  // encoded TensorProto; not below IR version 4
  std::vector<std::string> first_nodes;       // encoded NodeProto, in front of all others

  bool empty() const;
};

// How many bytes the copies of an edit, and their names, may add to a file: `kMaxCopyGrowth` times
// its size, and `kMinCopyBytes` whatever its size. Without a bound a small file could ask for any
// number of copies of its largest tensor, or of its longest name. A payload that stays where it
// lies does not count. Borrows nothing.
class CopyBudget {
 public:
  static constexpr size_t kMaxCopyGrowth = 32;
  static constexpr size_t kMinCopyBytes = size_t{192} << 20;

  // `keep_payloads` as for ApplyEdit.
  explicit CopyBudget(const ModelFile& file, bool keep_payloads = false);
  // Before a copy of the tensor `name`, whose encoded form is `source`, is made. ResourceExhausted,
  // with the tensor's name, where that is one too many.
  absl::Status Take(const std::string& name, std::string_view source);
  // The same for `bytes` of names that are written and reported for copies of this tensor.
  absl::Status TakeNames(const std::string& name, std::string_view source, size_t bytes);

 private:
  absl::Status Add(size_t bytes, const std::string& name, std::string_view source);

  size_t file_bytes_;
  bool leaves_payloads_;
  std::string_view last_source_;  // only its place is compared
  size_t last_bytes_ = 0;
  size_t bytes_ = 0;
};

// The file with these changes, all other fields byte for byte as they were, unknown ones too; the
// same file where nothing changes. External data stays where it is: a copy refers to the same
// bytes. Of a file that was mapped, payloads in the file of 64 KiB and more stay there as well
// (ModelFile::Edited) unless `keep_payloads`, so an edit costs little memory. Files of an IR
// version below 4 list the new initializers among the graph's inputs, as that version wants.
// InvalidArgument when the result is no valid model.
absl::StatusOr<ModelFile> ApplyEdit(ModelFile file, const FileEdit& edit,
                                    bool keep_payloads = false);

// The encoded tensors of a file's main graph. Views of the file's bytes.
struct EncodedTensors {
  std::vector<std::string_view> initializers;
  // Of nodes with one tensor attribute (Constant), by the node's place.
  std::map<int, std::string_view> constants;
};
EncodedTensors FindEncodedTensors(const ModelFile& file);

}  // namespace weft

#endif  // WEFT_ONNX_IMPORT_EDIT_FILE_EDIT_H_
