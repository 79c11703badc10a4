#include "training/data/testing/exercise_column.h"

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "platform/testing/fake_file_system.h"
#include "training/data/column_reader.h"
#include "training/data/data_spec.h"

namespace weft::testing {
namespace {

// What a part may be called in the files of the corpus.
const std::vector<std::string>& Parts() {
  static const auto* const kParts =
      new std::vector<std::string>{"", "0", "0-1", "x", "label", "ids", "image"};
  return *kParts;
}

void Exercise(const std::string& format, const std::string& part, bool is_labels,
              const std::string& bytes) {
  FakeFileSystem files;
  const std::string path = format == "images" ? "/f/a.png" : "/f";
  if (format == "images" && !files.CreateDirectories("/f").ok()) return;
  if (!files.WriteFileAtomically(path, bytes).ok()) return;
  DataSpec spec;
  spec.sequence_length = 2;
  if (is_labels) spec.vocabulary = "characters";
  DataSpec::File file;
  file.path = "/f";
  file.part = part;
  file.format = format;
  file.is_labels = is_labels;
  // Half of what may be ragged is padded.
  if (part == "ids" || (format == "lines" && is_labels)) file.padding = {{2, 4}, 0, /*cut=*/true};
  if (format == "tokens16" && is_labels) {
    spec.document_end = 0;
    file.padding = {{4}, 0, /*cut=*/true};
  }
  const auto column = OpenColumn(files, file, spec);
  if (!column.ok() || (*column)->samples() == 0) return;
  // An image may be large: its header is the claim, its pixels are what memory is taken for.
  if ((*column)->sample_bytes() > int64_t{1} << 24) return;
  std::vector<char> sample(static_cast<size_t>((*column)->sample_bytes()));
  for (const int64_t row : {int64_t{0}, (*column)->samples() - 1}) {
    (void)(*column)->Read(row, sample.data());
  }
}

}  // namespace

void ExerciseColumn(std::string_view input) {
  (void)DataSpec::FromJson(std::string(input));
  if (input.empty()) return;
  const std::vector<std::string> formats = DataFormats();
  const std::vector<std::string>& parts = Parts();
  const size_t choice = static_cast<unsigned char>(input[0]);
  Exercise(formats[choice % formats.size()], parts[choice / formats.size() % parts.size()],
           choice / formats.size() / parts.size() % 2 != 0, std::string(input.substr(1)));
}

}  // namespace weft::testing
