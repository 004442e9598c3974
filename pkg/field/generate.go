package field

//go:generate go run ./internal/gencatalogue -o zz_generated_catalogue.go
//go:generate go run ./internal/genmarkdown -o ../../docs/fields.md
