// Opens the column of a graph input: finds the format and hands on to its reader.
#ifndef WEFT_TRAINING_DATA_COLUMN_READER_H_
#define WEFT_TRAINING_DATA_COLUMN_READER_H_

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "platform/file_system.h"
#include "training/data/data_column.h"
#include "training/data/data_spec.h"

namespace weft {

// The formats that DataSpec::File::format names.
std::vector<std::string> DataFormats();

// Without a format named: that of the path's ending (a folder: images; .csv, .tsv, .npz, .txt,
// .tfrecord, .tfrecords), else of the first bytes (gzip, NPY, IDX). Files over 64 MiB stay mapped.
// `files` outlives the column. Errors name the file, and its place where they have one.
absl::StatusOr<std::unique_ptr<DataColumn>> OpenColumn(FileSystem& files,
                                                       const DataSpec::File& file,
                                                       const DataSpec& spec);

// "FILE:PART" taken apart, where there is no file of the whole name.
void SplitPart(FileSystem& files, const std::string& text, DataSpec::File& file);

}  // namespace weft

#endif  // WEFT_TRAINING_DATA_COLUMN_READER_H_
