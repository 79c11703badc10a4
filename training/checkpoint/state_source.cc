#include "training/checkpoint/state_source.h"

#include "absl/strings/str_cat.h"

namespace weft {

std::string CheckpointSource::text() const {
  return absl::StrCat("checkpoint '", checkpoint_.folder(), "'");
}

std::vector<std::string> CheckpointSource::names() const {
  std::vector<std::string> names;
  for (const CheckpointTensor& tensor : checkpoint_.index().tensors) names.push_back(tensor.name);
  return names;
}

}  // namespace weft
