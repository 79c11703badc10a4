#include "tools/flags/data_flags.h"

#include <algorithm>
#include <functional>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "platform/file_system.h"
#include "platform/status.h"
#include "platform/status_macros.h"
#include "tools/console/exit_code.h"
#include "tools/flags/options.h"
#include "training/data/column_reader.h"
#include "training/graph/training_graph.h"

namespace weft {
namespace {

// Of --batch.
constexpr char kAutoText[] = "auto";

constexpr char kDataOptions[] = "data";
constexpr size_t kClassesShown = 20;
constexpr size_t kNumbersShown = 8;

std::string Numbers(const std::vector<double>& numbers) {
  std::vector<std::string> texts;
  for (const double number : numbers) texts.push_back(absl::StrFormat("%.6g", number));
  const bool cut = texts.size() > kNumbersShown;
  if (cut) texts.resize(kNumbersShown);
  return absl::StrCat(absl::StrJoin(texts, ","), cut ? ",..." : "");
}

std::string FromZeroToOne(const std::string& text) {
  double value = 0;
  if (absl::SimpleAtod(text, &value) && value >= 0 && value < 1) return "";
  return absl::StrCat("'", text, "' is no number from 0 to less than 1");
}

absl::StatusOr<std::shared_ptr<const DataSet>> Open(const DataSpec& spec) {
  auto data = DataSet::Open(RealFileSystem(), spec);
  if (!data.ok()) return WithExitCode(data.status(), ExitCode::kData);
  return data;
}

// The masks that training has, of inputs that have other files now.
void AddTrainingMasks(const DataSpec& training, DataSpec& spec) {
  const auto find = [&spec](const std::string& input) {
    return std::find_if(spec.files.begin(), spec.files.end(),
                        [&](const DataSpec::File& file) { return file.input == input; });
  };
  for (DataSpec::File mask : training.files) {
    if (mask.mask_of.empty() || find(mask.input) != spec.files.end()) continue;
    const auto masked = find(mask.mask_of);
    if (masked == spec.files.end()) continue;
    mask.path = masked->path;
    mask.checksum = 0;
    spec.files.push_back(std::move(mask));
  }
}

}  // namespace

absl::StatusOr<AutoBatch> ParseAutoBatch(const std::string& text) {
  const std::vector<std::string> parts = absl::StrSplit(text, ':');
  AutoBatch batch;
  bool good = parts[0] == kAutoText && parts.size() <= 3;
  const auto take = [&](size_t i, int64_t& number) {
    if (parts.size() > i) good = good && absl::SimpleAtoi(parts[i], &number) && number >= 1;
  };
  take(1, batch.max);
  take(2, batch.base);
  if (good) return batch;
  return absl::InvalidArgumentError(absl::StrCat(
      "'", text, "' is not a batch; expected N, auto, auto:MAX or auto:MAX:BASE, whole numbers"));
}

void DataFlags::AddFiles(CLI::App& app, bool required) {
  app.add_option("--data", data_, "data of graph inputs: arrays, CSV, text, images, records")
      ->type_name("NAME=FILE[:PART]");
  Require(app, required);
  app.add_option("--labels", labels_, "labels, one for each sample; may be the same file")
      ->type_name("FILE[:PART]");
  app.add_option("--batch", batch_, "samples in a global batch (default 128)")
      ->type_name("N")
      ->check(AtLeastOne);
  app.add_flag("--no-scale", no_scale_,
               "feed bytes to a float input as 0 to 255, not as byte / 255")
      ->group(kDataOptions);
  app.add_option(
         "--format", formats_,
         absl::StrCat(
             "format of all files, or of the files of one input, if the name does not say it: ",
             absl::StrJoin(DataFormats(), ", ")))
      ->type_name("[NAME=]FORMAT")
      ->group(kDataOptions);
  app.add_option(
         "--sequence-length", sequence_length_,
         "tokens per sample of a text or token file; the labels are the next tokens (default 128)")
      ->type_name("T")
      ->check(AtLeastOne)
      ->group(kDataOptions);
  app.add_option("--stride", stride_, "tokens between the starts of two samples (default T)")
      ->type_name("N")
      ->check(AtLeastOne)
      ->group(kDataOptions);
  app.add_option("--vocabulary", vocabulary_,
                 "the tokens of a text: bytes, characters (of the text, sorted by code), or a file "
                 "with one token per line (default bytes)")
      ->type_name("bytes|characters|FILE")
      ->group(kDataOptions);
  app.add_option(
         "--image-shape", image_shape_,
         "channels, height and width to scale images to (default: those of the first image)")
      ->type_name("3xHxW")
      ->group(kDataOptions);
  app.add_option("--classes", classes_,
                 "texts or folders of the classes 0, 1, ... (default: those found, sorted)")
      ->type_name("A,B,...")
      ->delimiter(',')
      ->group(kDataOptions);
  app.add_option(
         "--pad", paddings_,
         "pad samples of input NAME to length N with VALUE (default 0). With several lengths, "
         "N,N,... or STEP..N, each batch uses the shortest that fits. :cut truncates longer "
         "samples")
      ->type_name("NAME=N[,N...][:VALUE][:cut]")
      ->group(kDataOptions);
  app.add_option("--mask", masks_,
                 "feed input NAME with 1 for elements of INPUT and 0 for its padding")
      ->type_name("NAME=INPUT")
      ->group(kDataOptions);
  app.add_option(
         "--document-end", document_end_,
         "the token that ends each document of a token file; each document is then a sample")
      ->type_name("TOKEN")
      ->check(CLI::NonNegativeNumber.description(""))
      ->group(kDataOptions);
  app.add_option(
         "--normalize", normalizations_,
         "use (x - mean) / deviation, after byte / 255. x=0.13/0.31 gives both, "
         "x=0.5,0.4,0.4/0.2,0.2,0.2 gives them per channel, x=auto measures the training samples")
      ->type_name("NAME=MEAN/DEV|auto")
      ->group(kDataOptions);
  app.add_option("--validation-split", validation_split_,
                 "hold out this part of the samples: train skips it, eval uses only it")
      ->type_name("0.1")
      ->check(CLI::Validator(FromZeroToOne, ""))
      ->group(kDataOptions);
  app.add_option(
         "--prefetch", prefetch_,
         "read samples this many steps ahead (default 2 if they are decoded, mapped or augmented)")
      ->type_name("N")
      ->check(CLI::Range(0, 1000).description(""))
      ->group(kDataOptions);
  app.add_option("--reader-threads", reader_threads_,
                 "threads per worker that read ahead (default 2)")
      ->type_name("N")
      ->check(CLI::Range(1, 1000).description(""))
      ->group(kDataOptions);
}

void DataFlags::Require(CLI::App& app, bool required) {
  required_ = required;
  app.get_option("--data")->required(required);
}

// An option has the type of its number, so this one takes the place of the other.
void DataFlags::AllowAutoBatch(CLI::App& app) {
  app.remove_option(app.get_option("--batch"));
  const std::function<void(const std::string&)> take = [this](const std::string& text) {
    auto_batch_.reset();
    if (absl::SimpleAtoi(text, &batch_)) return;
    const auto parsed = ParseAutoBatch(text);
    if (!parsed.ok()) return;  // the check has refused it
    auto_batch_ = *parsed;
    batch_ = parsed->base;
  };
  app.add_option_function<std::string>(
         "--batch", take, "samples in a global batch (default 128); auto: by the noise scale")
      ->type_name("N|auto[:MAX]")
      ->check([](const std::string& text) {
        int64_t number = 0;
        if (absl::SimpleAtoi(text, &number) || !absl::StartsWith(text, kAutoText)) {
          return AtLeastOne(text);
        }
        const auto parsed = ParseAutoBatch(text);
        return parsed.ok() ? std::string() : std::string(parsed.status().message());
      });
}

void DataFlags::AddTraining(CLI::App& app) {
  app.add_option("--seed", seed_, "seed of the sample order, --augment and --lora (default 0)")
      ->type_name("S")
      ->group(kDataOptions);
  app.add_flag("--drop-last", drop_last_, "drop the short batch at the end of an epoch")
      ->group(kDataOptions);
  app.add_flag(
         "--group-lengths", group_lengths_,
         "shuffle so that the samples of a batch have similar lengths, for --pad with several")
      ->group(kDataOptions);
  app.add_option(
         "--augment", augmentations_,
         "change images of an input at random, differently in each epoch: flip, crop:PIXELS, "
         "brightness:PART, cutout:PIXELS")
      ->type_name("NAME=flip,crop:4,...")
      ->group(kDataOptions);
}

absl::Status DataFlags::ForInput(DataSpec& spec, const std::string& flag, const std::string& text,
                                 DataSpec::File*& file, std::string& value) const {
  const size_t equals = text.find('=');
  if (equals == std::string::npos || equals == 0 || equals + 1 == text.size()) {
    return UsageError(
        absl::StrCat(flag, " ", text, ": expected NAME=VALUE, with the name of an input"));
  }
  const std::string name = text.substr(0, equals);
  value = text.substr(equals + 1);
  const auto found = std::find_if(spec.files.begin(), spec.files.end(),
                                  [&](const DataSpec::File& f) { return f.input == name; });
  if (found == spec.files.end()) {
    return UsageError(absl::StrCat(flag, " ", text, ": there is no --data ", name, "=FILE"));
  }
  file = &*found;
  return absl::OkStatus();
}

absl::Status DataFlags::AddFormats(DataSpec& spec) const {
  const std::vector<std::string> known = DataFormats();
  for (const std::string& text : formats_) {
    std::string format = text;
    DataSpec::File* file = nullptr;
    if (text.find('=') != std::string::npos) {
      WEFT_RETURN_IF_ERROR(ForInput(spec, "--format", text, file, format));
    }
    if (std::find(known.begin(), known.end(), format) == known.end()) {
      return UsageError(
          absl::StrCat("--format ", text, ": there are ", absl::StrJoin(known, ", ")));
    }
    for (DataSpec::File& each : spec.files) {
      if (file == nullptr || file == &each) each.format = format;
    }
  }
  return absl::OkStatus();
}

absl::Status DataFlags::AddPadding(DataSpec& spec) const {
  for (const std::string& text : paddings_) {
    DataSpec::File* file = nullptr;
    std::string value;
    WEFT_RETURN_IF_ERROR(ForInput(spec, "--pad", text, file, value));
    auto padding = ParsePadding(value);
    if (!padding.ok()) {
      return WithExitCode(Annotate(padding.status(), absl::StrCat("--pad ", file->input)),
                          ExitCode::kUsage);
    }
    file->padding = *std::move(padding);
  }
  return absl::OkStatus();
}

absl::Status DataFlags::AddMasks(DataSpec& spec) const {
  for (const std::string& text : masks_) {
    const std::vector<std::string> parts = absl::StrSplit(text, absl::MaxSplits('=', 1));
    if (parts.size() != 2 || parts[0].empty()) {
      return UsageError(absl::StrCat("--mask ", text, ": expected NAME=INPUT"));
    }
    const auto masked = std::find_if(spec.files.begin(), spec.files.end(), [&](const auto& file) {
      return file.input == parts[1] && file.mask_of.empty();
    });
    if (masked == spec.files.end() || masked->padding.empty()) {
      return UsageError(absl::StrCat("--mask ", text, ": there is no --pad ", parts[1],
                                     "=N, so nothing is padded"));
    }
    DataSpec::File mask;
    mask.input = parts[0];
    mask.path = masked->path;
    mask.padding = masked->padding;
    mask.mask_of = parts[1];
    spec.files.push_back(std::move(mask));
  }
  return absl::OkStatus();
}

absl::Status DataFlags::AddChanges(DataSpec& spec) const {
  for (const std::string& text : normalizations_) {
    DataSpec::File* file = nullptr;
    std::string value;
    WEFT_RETURN_IF_ERROR(ForInput(spec, "--normalize", text, file, value));
    auto normalization = ParseNormalization(value);
    if (!normalization.ok()) {
      return WithExitCode(Annotate(normalization.status(), "--normalize"), ExitCode::kUsage);
    }
    file->normalization = *std::move(normalization);
  }
  for (const std::string& text : augmentations_) {
    DataSpec::File* file = nullptr;
    std::string value;
    WEFT_RETURN_IF_ERROR(ForInput(spec, "--augment", text, file, value));
    auto augmentations = ParseAugmentations(value);
    if (!augmentations.ok()) {
      return WithExitCode(Annotate(augmentations.status(), "--augment"), ExitCode::kUsage);
    }
    file->augmentations = *std::move(augmentations);
  }
  return absl::OkStatus();
}

absl::Status DataFlags::AddImageShape(DataSpec& spec) const {
  if (image_shape_.empty()) return absl::OkStatus();
  for (const absl::string_view word : absl::StrSplit(image_shape_, 'x')) {
    if (!absl::SimpleAtoi(word, &spec.image_shape.emplace_back())) spec.image_shape.clear();
    if (spec.image_shape.empty()) break;
  }
  if (spec.image_shape.size() == 3) return absl::OkStatus();
  return UsageError(absl::StrCat("--image-shape ", image_shape_,
                                 ": expected channels, height and width, for example 3x32x32"));
}

absl::StatusOr<DataSpec> DataFlags::Spec() const {
  const auto named = ParseNamedFiles(data_, "--data");
  if (!named.ok()) return WithExitCode(named.status(), ExitCode::kUsage);
  DataSpec spec;
  for (const NamedFile& file : *named) {
    spec.files.emplace_back().input = file.name;
    SplitPart(RealFileSystem(), file.path, spec.files.back());
  }
  if (!labels_.empty()) {
    spec.files.emplace_back().input = kLabelsInput;
    spec.files.back().is_labels = true;
    SplitPart(RealFileSystem(), labels_, spec.files.back());
  }
  spec.batch = batch_;
  spec.seed = seed_;
  spec.scale_bytes = !no_scale_;
  spec.validation_split = validation_split_;
  spec.sequence_length = sequence_length_;
  spec.stride = stride_;
  spec.document_end = document_end_;
  spec.vocabulary = vocabulary_;
  spec.classes = classes_;
  spec.prefetch = prefetch_;
  spec.reader_threads = reader_threads_;
  WEFT_RETURN_IF_ERROR(AddFormats(spec));
  WEFT_RETURN_IF_ERROR(AddPadding(spec));
  WEFT_RETURN_IF_ERROR(AddMasks(spec));
  WEFT_RETURN_IF_ERROR(AddChanges(spec));
  WEFT_RETURN_IF_ERROR(AddImageShape(spec));
  return spec;
}

absl::StatusOr<DataSpec> DataFlags::TrainingSpec(bool shuffle, int64_t batch) const {
  WEFT_ASSIGN_OR_RETURN(DataSpec spec, Spec());
  if (batch > 0) spec.batch = batch;
  spec.shuffle = shuffle;
  spec.group_lengths = group_lengths_ && shuffle;
  spec.drop_last = drop_last_;
  spec.share = has_validation() ? DataShare::kTraining : DataShare::kAll;
  return spec;
}

absl::StatusOr<std::shared_ptr<const DataSet>> DataFlags::OpenTraining(bool shuffle,
                                                                       int64_t batch) const {
  WEFT_ASSIGN_OR_RETURN(const DataSpec spec, TrainingSpec(shuffle, batch));
  return Open(spec);
}

absl::StatusOr<std::shared_ptr<const DataSet>> DataFlags::OpenValidation() const {
  WEFT_ASSIGN_OR_RETURN(DataSpec spec, Spec());
  for (DataSpec::File& file : spec.files) file.augmentations.clear();
  spec.share = has_validation() ? DataShare::kValidation : DataShare::kAll;
  return Open(spec);
}

absl::StatusOr<std::shared_ptr<const DataSet>> OpenEvaluationData(
    const DataSpec& training, const std::vector<NamedFile>& files, const std::string& labels) {
  DataSpec spec = training;
  spec.shuffle = false;
  spec.group_lengths = false;
  spec.drop_last = false;
  for (DataSpec::File& file : spec.files) file.augmentations.clear();
  if (files.empty() && labels.empty()) {
    if (training.validation_split == 0) {
      return UsageError(
          "there are no samples to measure with; give some files, or --validation-split");
    }
    spec.share = DataShare::kValidation;
    return Open(spec);
  }
  spec.share = DataShare::kAll;
  std::vector<NamedFile> all = files;
  if (!labels.empty()) all.push_back({kLabelsInput, labels});
  spec.files.clear();
  for (const NamedFile& other : all) {
    DataSpec::File file;
    for (const DataSpec::File& trained : training.files) {
      if (trained.input == other.name) file = trained;
    }
    file.input = other.name;
    file.is_labels = other.name == kLabelsInput;
    file.augmentations.clear();
    file.checksum = 0;
    const std::string part = file.part;
    SplitPart(RealFileSystem(), other.path, file);
    if (file.part.empty()) file.part = part;
    file.mask_of.clear();
    spec.files.push_back(std::move(file));
  }
  AddTrainingMasks(training, spec);
  return Open(spec);
}

std::string DataNotes(const DataSet& data) {
  std::string text;
  const DataSpec& spec = data.spec();
  std::vector<int64_t> lengths;
  for (const BatchShape& shape : data.shapes()) {
    if (shape.length > 0 && (lengths.empty() || lengths.back() != shape.length)) {
      lengths.push_back(shape.length);
    }
  }
  if (!lengths.empty()) {
    absl::StrAppend(&text, "length samples of a step are padded to ", absl::StrJoin(lengths, ", "),
                    "; programs for each: ", data.shapes().size(), "\n");
  }
  if (spec.share != DataShare::kAll) {
    absl::StrAppend(&text, "share  ", spec.share == DataShare::kTraining ? "without" : "only",
                    " what --validation-split ", spec.validation_split, " holds out\n");
  }
  for (const DataSpec::File& file : spec.files) {
    const std::vector<std::string>& names = data.Find(file.input)->info().class_names;
    for (size_t i = 0; i < std::min(names.size(), kClassesShown); ++i) {
      absl::StrAppend(&text, i == 0 ? absl::StrCat("class  ", file.input, ": ") : ", ", i, " = ",
                      names[i]);
    }
    if (names.size() > kClassesShown) absl::StrAppend(&text, ", ... ", names.size(), " in all");
    if (!names.empty()) text += "\n";
    if (!file.normalization.mean.empty()) {
      absl::StrAppend(&text, "change --normalize ", file.input, "=",
                      Numbers(file.normalization.mean), "/", Numbers(file.normalization.deviation),
                      "\n");
    }
  }
  return text;
}

}  // namespace weft
